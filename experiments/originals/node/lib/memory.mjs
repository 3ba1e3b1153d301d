// What timeouts that were ended in time still hold, read after the collections that also clear dropped signals.
import { clockCostNs, collect } from './clocks.mjs';
import { never, raceUncleared } from './systems.mjs';

const TIMERS_QUICK = 200_000;
const TIMERS_FULL = 1_000_000;
const DURATION_MS = 60_000;
const TURN_EVERY = 1_000;
const MOST_SIGNALS = 200_000;

export async function memory(visit) {
    const timers = visit.full ? TIMERS_FULL : TIMERS_QUICK;
    const forms = visit.systems.map((system) => ({
        service: system.service,
        note: 'arm and end one after the other',
        made: system.lazyCancel ? Math.min(timers, MOST_SIGNALS) : timers,
        armAndEnd: () => system.arm(DURATION_MS, never)(),
    }));
    const uncleared = {
        service: 'original/node/promise_race_uncleared',
        note: 'the form that is often written: no clearTimeout, so the timer stays for its 60 s',
        made: timers,
        armAndEnd: () => { raceUncleared(Promise.resolve(1), DURATION_MS).catch(never); },
    };
    if (visit.wants(uncleared.service)) forms.push(uncleared);
    for (const form of visit.shuffled(forms)) await measure(visit, form, timers);
}

async function measure(visit, { service, note, made, armAndEnd }, timers) {
    const cell = { kind: 'cancelled', timers, duration_ms: DURATION_MS };
    await repeat(armAndEnd, TURN_EVERY);
    await collect();
    const heapBefore = process.memoryUsage().heapUsed;
    const residentBefore = process.memoryUsage.rss();
    await repeat(armAndEnd, made);
    await collect();
    const held = (process.memoryUsage().heapUsed - heapBefore) / made;
    const resident = (process.memoryUsage.rss() - residentBefore) / made;
    const clocks = [clockCostNs()];
    visit.report.samples(service, cell, 'held', 'B', [held], clocks, `${made} of them, ${note}; after collections`);
    visit.report.samples(service, cell, 'rss', 'B', [resident], clocks,
        'the growth of the heap with what has been collected since');
}

/** The microtasks of what was ended run every 1 000, as they would between requests. */
async function repeat(action, count) {
    for (let i = 0; i < count; i += 1) {
        action();
        if (i % TURN_EVERY === TURN_EVERY - 1) await new Promise((resolve) => { setImmediate(resolve); });
    }
}
