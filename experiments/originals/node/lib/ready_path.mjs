// A timeout around an operation that is done at once, and the same operation without it, in turn.
import { clockCostNs, collect, nowNs } from './clocks.mjs';
import { calibrate } from './warmup.mjs';

const CELL = { kind: 'ready', duration_ms: 1000 };

export async function readyPath(visit) {
    for (const system of visit.shuffled(visit.systems)) {
        if (typeof system.ready === 'string') {
            visit.report.skipped(system.service, CELL, 'above_bare', 'ns/op', system.ready);
            visit.report.skipped(system.service, CELL, 'poll', 'ns/op', system.ready);
        } else {
            await measure(visit, system);
        }
    }
}

async function measure(visit, { service, ready }) {
    const bareCount = await calibrate(ready.bare);
    const timedCount = await calibrate(ready.timed);
    await collect();
    const above = [];
    const poll = [];
    const clocks = [];
    for (let i = 0; i < visit.batches; i += 1) {
        const bareNs = await perCallNs(ready.bare, bareCount);
        above.push(await perCallNs(ready.timed, timedCount) - bareNs);
        poll.push(bareNs);
        clocks.push(clockCostNs());
    }
    visit.report.samples(service, CELL, 'above_bare', 'ns/op', above, clocks,
        `an awaited promise, ${timedCount} calls a batch with the timeout, warmed up for 0.5 s`);
    visit.report.samples(service, CELL, 'poll', 'ns/op', poll, clocks, `${bareCount} calls a batch`);
}

async function perCallNs(loop, count) {
    const start = nowNs();
    await loop(count);
    return Number(nowNs() - start) / count;
}
