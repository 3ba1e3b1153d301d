// How late a timeout is seen: from just before it was armed to the start of its callback. A second thread wakes the
// loop at random times, as requests from outside do: a timer that armed the next one would put all of them at the same
// place in the loop's millisecond.
import { Worker } from 'node:worker_threads';
import { clockCostNs, nowNs } from './clocks.mjs';

const DURATIONS_MS = [1, 5, 10, 25, 100];
const EVENTS_QUICK = 200;
const EVENTS_FULL = 1_000;
const WARM_EVENTS = 200;
const WARM_MS = 2;
const SPREAD_MS = 200;
const SHORTEST_GAP_MS = 0.5;
const PATIENCE_MS = 10_000;

export async function accuracy(visit) {
    const events = visit.full ? EVENTS_FULL : EVENTS_QUICK;
    const waker = new Worker(new URL('./waker.mjs', import.meta.url));
    for (const system of visit.systems) await lateness(waker, visit, system, WARM_MS, WARM_EVENTS);

    const cells = visit.systems.flatMap((system) => DURATIONS_MS.map((ms) => ({ system, ms })));
    for (const { system, ms } of visit.shuffled(cells)) {
        const cell = { duration_ms: ms };
        const late = await lateness(waker, visit, system, ms, events);
        if (late.length === events) {
            visit.report.events(system.service, cell, 'callback_start', 'ms', late, clockCostNs(),
                `after ${WARM_EVENTS} events that only warm the code up`);
        } else {
            visit.report.error(system.service, cell, 'callback_start', 'ms',
                `${late.length} of ${events} timeouts were seen within ${PATIENCE_MS} ms`);
        }
    }
    await waker.terminate();
}

/** Arms as often as the waker says and resolves to how late each was, ms; fewer if some were not seen in time. */
function lateness(waker, visit, system, ms, events) {
    return new Promise((resolve) => {
        const late = [];
        const finish = () => {
            clearTimeout(patience);
            waker.off('message', arm);
            resolve(late);
        };
        const arm = () => {
            const armed = nowNs();
            system.arm(ms, () => {
                late.push(Number(nowNs() - armed) / 1e6 - ms);
                if (late.length === events) finish();
            });
        };
        const patience = setTimeout(finish, PATIENCE_MS);
        waker.on('message', arm);
        waker.postMessage(Array.from({ length: events },
            () => visit.random() * 2 * Math.max(SHORTEST_GAP_MS, SPREAD_MS / events)));
    });
}
