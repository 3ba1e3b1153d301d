// The clocks of the process.

const READINGS = 1_000;
const WARM_LOOPS = 100;
const CLEARING_TURNS = 3;

/** Monotonic time, ns. */
export const nowNs = () => process.hrtime.bigint();

/** CPU time of all threads of the process, ns, in steps of 1 us. */
export function processCpuNs() {
    const { user, system } = process.cpuUsage();
    return (user + system) * 1_000;
}

/** What one process.hrtime.bigint() costs now, ns. */
export function clockCostNs() {
    const start = nowNs();
    let last = start;
    for (let i = 0; i < READINGS; i += 1) last = nowNs();
    return Number(last - start) / READINGS;
}

/** Lets the loop turn once. */
export const turn = () => new Promise((resolve) => { setImmediate(resolve); });

/** Collects, lets the loop clear the timers whose signals the collector found dropped, and collects those. */
export async function collect() {
    globalThis.gc();
    for (let i = 0; i < CLEARING_TURNS; i += 1) await turn();
    globalThis.gc();
}

/** Compiles the loop of clockCostNs, which is several times slower before. */
export function warmClock() {
    for (let i = 0; i < WARM_LOOPS; i += 1) clockCostNs();
}
