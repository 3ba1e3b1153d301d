// The Node originals: setTimeout with clearTimeout, AbortSignal.timeout, and Promise.race against a setTimeout.
//
// One thread runs the loop and everything in it, so the caller's time holds all work but the collector's helpers. What
// does not compare with other programs, and what was done about it: code is slow until it is compiled, so each system
// runs for half a second first; collections run when they will and are paid in the figures, but each case starts after
// one; a timer starts from the loop's cached time in whole milliseconds, which is why it may fire up to 1 ms early;
// AbortSignal.timeout cannot be cancelled: its users drop the signal, and the timer stays until a collection has seen
// that, so its pairs are also made at a pace that leaves room for it. A pair of Promise.race holds the promises around
// it and the turns of the microtask queue. The clock is process.hrtime.bigint, CLOCK_MONOTONIC on Linux.
import { accuracy } from './lib/accuracy.mjs';
import { allocs } from './lib/allocs.mjs';
import { armCancel } from './lib/arm_cancel.mjs';
import { warmClock } from './lib/clocks.mjs';
import { Mistake, parse } from './lib/arguments.mjs';
import { memory } from './lib/memory.mjs';
import { readyPath } from './lib/ready_path.mjs';
import { Report, Unwritable, write } from './lib/report.mjs';
import { scaling } from './lib/scaling.mjs';
import { systems } from './lib/systems.mjs';
import { verify } from './lib/verify.mjs';
import { Visit } from './lib/visit.mjs';

const CHECK_FAILED = 1;
const USER_MISTAKE = 2;
const UNWRITABLE = 2;

const experiments = {
    ready_path: readyPath,
    arm_cancel: armCancel,
    allocs,
    scaling,
    accuracy,
    memory,
    soak: () => console.error('originals/node: the soak is for the wheel of the article only'),
};

async function main(words) {
    const options = parse(words, Object.keys(experiments), systems.map((system) => system.service));
    if (options.mode === 'list') {
        for (const system of systems) write(system.service);
        return 0;
    }
    const report = new Report();
    report.versions({ node: process.versions.node, v8: process.versions.v8, node_libuv: process.versions.uv });
    if (options.mode === 'verify') {
        await verify(report);
    } else {
        warmClock();
        await experiments[options.experiment](new Visit(options, report));
    }
    return report.failedChecks === 0 ? 0 : CHECK_FAILED;
}

try {
    // Timers that a case has left armed must not keep the process.
    process.exit(await main(process.argv.slice(2)));
} catch (failure) {
    if (!(failure instanceof Mistake || failure instanceof Unwritable)) throw failure;
    console.error(`originals/node: ${failure.message}`);
    process.exit(failure instanceof Mistake ? USER_MISTAKE : UNWRITABLE);
}
