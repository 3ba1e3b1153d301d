// The pair among others that are armed: as fast as the loop can (saturating) and, where what was ended stays for a
// while, a hundred pairs each millisecond (paced).
import { clockCostNs, collect, nowNs, processCpuNs } from './clocks.mjs';
import { fired, never } from './systems.mjs';
import { calibrate } from './warmup.mjs';

const POPULATIONS = [0, 10_000, 1_000_000];
const EARLIEST_MS = 120_000;
const LATEST_MS = 840_000;
const BURSTS = 50;
const BURST_PAIRS = 100;
const PACED_CPU = 'one thread sleeps, paces and makes the pairs: the CPU time of the pairs alone cannot be told apart';

/** The others belong to the runtime's one list, whatever armed them: they are armed once for all systems. */
export async function armCancel(visit) {
    const pairs = new Map();
    for (const system of visit.systems) pairs.set(system, await calibrate(system.pairs));
    for (const population of visit.shuffled(POPULATIONS)) {
        const others = [];
        for (let i = 0; i < population; i += 1) {
            others.push(setTimeout(never, EARLIEST_MS + visit.random() * (LATEST_MS - EARLIEST_MS)));
        }
        await collect();
        for (const system of visit.shuffled(visit.systems)) {
            if (system.lazyCancel) await paced(visit, system, population);
            await saturating(visit, system, population, pairs.get(system));
        }
        others.forEach(clearTimeout);
    }
}

async function saturating(visit, system, population, count) {
    const cell = { kind: 'article', population, duration_ms: 1000, regime: 'saturating' };
    const wall = [];
    const cpu = [];
    const clocks = [];
    fired.count = 0;
    // The first batch after a collection is dearer: it is made and not counted.
    await system.pairs(count);
    const heapBefore = process.memoryUsage().heapUsed;
    for (let i = 0; i < visit.batches; i += 1) {
        const cpuBefore = processCpuNs();
        const start = nowNs();
        await system.pairs(count);
        wall.push(Number(nowNs() - start) / count);
        cpu.push((processCpuNs() - cpuBefore) / count);
        clocks.push(clockCostNs());
    }
    const grown = process.memoryUsage().heapUsed - heapBefore;
    let note = `${count} pairs a batch, the system warmed up for 0.5 s before its first case`;
    if (system.lazyCancel) {
        const cpuBefore = processCpuNs();
        await collect();
        const gcMs = (processCpuNs() - cpuBefore) / 1e6;
        note += `; over ${count * visit.batches} pairs the heap grew by ${(grown / 1e6).toFixed(1)} MB, collections ` +
            `included; those that find and free what the pairs left took ${gcMs.toFixed(0)} ms of CPU, most of it ` +
            'for the rest of the heap, and are in neither figure';
    }
    const wrong = countsWrong(system, population);
    if (wrong !== '') {
        visit.report.error(system.service, cell, 'arm_cancel', 'ns/op', wrong);
        visit.report.error(system.service, cell, 'process_cpu', 'ns/op', wrong);
        return;
    }
    visit.report.samples(system.service, cell, 'arm_cancel', 'ns/op', wall, clocks, note);
    visit.report.samples(system.service, cell, 'process_cpu', 'ns/op', cpu, clocks,
        system.lazyCancel ? 'without the collection that clears the timers of dropped signals' : '');
}

async function paced(visit, system, population) {
    const cell = {
        kind: 'article', population, duration_ms: 1000, regime: 'paced', pairs_per_ms: BURST_PAIRS,
    };
    const wall = [];
    const clocks = [];
    fired.count = 0;
    for (let i = 0; i < visit.batches; i += 1) {
        let burstsNs = 0;
        let next = nowNs();
        for (let burst = 0; burst < BURSTS; burst += 1) {
            await untilNs(next);
            next += 1_000_000n;
            const start = nowNs();
            await system.pairs(BURST_PAIRS);
            burstsNs += Number(nowNs() - start);
        }
        wall.push(burstsNs / (BURSTS * BURST_PAIRS));
        clocks.push(clockCostNs());
    }
    const wrong = countsWrong(system, population);
    if (wrong === '') {
        visit.report.samples(system.service, cell, 'arm_cancel', 'ns/op', wall, clocks,
            `a sample is ${BURSTS} bursts of ${BURST_PAIRS} pairs, a millisecond apart`);
    } else {
        visit.report.error(system.service, cell, 'arm_cancel', 'ns/op', wrong);
    }
    visit.report.skipped(system.service, cell, 'process_cpu', 'ns/op', PACED_CPU);
}

/** The loop turns while it waits: a sleeping timer would be one more armed timeout, and rounds to milliseconds. */
async function untilNs(time) {
    while (nowNs() < time) await new Promise((resolve) => { setImmediate(resolve); });
}

function countsWrong(system, population) {
    if (fired.count !== 0) return `${fired.count} timeouts fired that were ended in time`;
    if (!system.activeTimeouts) return '';
    const active = process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
    return active === population ? '' : `${active} timeouts are active, the ${population} others should be`;
}
