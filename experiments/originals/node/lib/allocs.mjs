// What a pair allocates on the heap of the engine: its growth over few enough pairs that no collection runs.
import { clockCostNs, collect } from './clocks.mjs';
import { calibrate } from './warmup.mjs';

const CELL = { kind: 'article', duration_ms: 1000 };
const PAIRS = 1_000;
const NO_COUNT = 'the engine tells the bytes in use, not the objects that were made';
const COLLECTED = 'a collection ran among the pairs of each try';
const TRIES = 5;

export async function allocs(visit) {
    for (const system of visit.shuffled(visit.systems)) {
        visit.report.skipped(system.service, CELL, 'allocations', '1/op', NO_COUNT);
        await calibrate(system.pairs);
        const bytes = [];
        const clocks = [];
        for (let tries = 0; bytes.length < visit.batches && tries < visit.batches * TRIES; tries += 1) {
            await collect();
            const before = process.memoryUsage().heapUsed;
            await system.pairs(PAIRS);
            const grown = process.memoryUsage().heapUsed - before;
            if (grown > 0) {
                bytes.push(grown / PAIRS);
                clocks.push(clockCostNs());
            }
        }
        if (bytes.length < visit.batches) {
            visit.report.error(system.service, CELL, 'bytes', 'B/op', COLLECTED);
        } else {
            visit.report.samples(system.service, CELL, 'bytes', 'B/op', bytes, clocks,
                `growth of the heap over ${PAIRS} pairs with no collection among them`);
        }
    }
}
