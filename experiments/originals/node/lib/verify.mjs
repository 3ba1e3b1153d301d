// What each system must do before its figures mean anything. Node counts whole milliseconds from the loop's cached
// time, so a timeout may come up to 1 ms early.
import { nowNs } from './clocks.mjs';
import { systems } from './systems.mjs';

const FIRE_MS = 20;
const CANCELLED_MS = 10;
const SENTINEL_MS = 40;
const EVENTS = 100;
const LONGEST_MS = 30;
const EARLIEST_MS = -1;
const PATIENCE_MS = 5_000;

export async function verify(report) {
    for (const system of systems) {
        await fires(report, system);
        await cancelledDoesNot(report, system);
        await earlyAtMost(report, system);
    }
}

async function fires(report, system) {
    const late = await lateness(system, FIRE_MS);
    report.check('a timeout fires', system.service, late !== null && late >= EARLIEST_MS,
        `${FIRE_MS} ms: ${late === null ? `nothing seen in ${PATIENCE_MS} ms` : `${late.toFixed(3)} ms late`}`);
}

async function cancelledDoesNot(report, system) {
    let fired = false;
    system.arm(CANCELLED_MS, () => { fired = true; })();
    const sentinel = await lateness(system, SENTINEL_MS);
    report.check('a cancelled timeout does not fire', system.service, sentinel !== null && !fired,
        `a later sentinel ${sentinel === null ? 'did not fire' : 'fired'}, the cancelled one ` +
        `${fired ? 'fired' : 'did not fire'}`);
}

async function earlyAtMost(report, system) {
    const late = await Promise.all(Array.from({ length: EVENTS }, (_, i) => lateness(system, 1 + (i % LONGEST_MS))));
    const seen = late.filter((value) => value !== null);
    const earliest = Math.min(...seen);
    report.check('no timeout fires more than 1 ms early', system.service,
        seen.length === EVENTS && earliest >= EARLIEST_MS,
        `${seen.length} of ${EVENTS} timeouts of 1 to ${LONGEST_MS} ms seen, the earliest ` +
        (seen.length === 0 ? 'none to tell' : `${earliest.toFixed(3)} ms`));
}

/** How late a timeout was seen, ms; null if it was not seen. The patience also keeps the loop alive for a signal. */
function lateness(system, ms) {
    return new Promise((resolve) => {
        const patience = setTimeout(() => resolve(null), PATIENCE_MS);
        const armed = nowNs();
        system.arm(ms, () => {
            const late = Number(nowNs() - armed) / 1e6 - ms;
            clearTimeout(patience);
            resolve(late);
        });
    });
}
