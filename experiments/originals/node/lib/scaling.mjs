// The pair by several threads at once, each with a loop and timers of its own: a runtime has one thread.
import { Worker } from 'node:worker_threads';
import { clockCostNs, processCpuNs } from './clocks.mjs';

const WORKERS = [1, 2, 4, 8];

export async function scaling(visit) {
    const gate = new Int32Array(new SharedArrayBuffer(8));
    const pool = Array.from({ length: Math.max(...WORKERS) }, () => new Peer(gate));
    const pairs = new Map();
    for (const system of visit.systems) {
        const [first, ...others] = pool;
        pairs.set(system, await first.ask({ warm: system.service }));
        await Promise.all(others.map((peer) => peer.ask({ warm: system.service })));
    }
    const cells = visit.systems.flatMap((system) => WORKERS.map((workers) => ({ system, workers })));
    for (const { system, workers } of visit.shuffled(cells)) {
        await measure(visit, system, pool.slice(0, workers), pairs.get(system), gate);
    }
    await Promise.all(pool.map((peer) => peer.stop()));
}

async function measure(visit, system, peers, count, gate) {
    const cell = { workers: peers.length };
    const wall = [];
    const cpu = [];
    const clocks = [];
    let fired = 0;
    for (let i = 0; i < visit.batches; i += 1) {
        Atomics.store(gate, 0, 0);
        const cpuBefore = processCpuNs();
        const results = await Promise.all(peers.map((peer) =>
            peer.ask({ batch: system.service, pairs: count, workers: peers.length })));
        cpu.push((processCpuNs() - cpuBefore) / (count * peers.length));
        const starts = results.map((result) => result.startNs);
        const ends = results.map((result) => result.endNs);
        wall.push(Number(largest(ends) - smallest(starts)) / count);
        fired += results.reduce((sum, result) => sum + result.fired, 0);
        clocks.push(clockCostNs());
        if (system.lazyCancel) await Promise.all(peers.map((peer) => peer.ask({ collect: true })));
    }
    if (fired !== 0) {
        const why = `${fired} timeouts fired that were ended in time`;
        visit.report.error(system.service, cell, 'arm_cancel', 'ns/op', why);
        visit.report.error(system.service, cell, 'process_cpu', 'ns/op', why);
        return;
    }
    visit.report.samples(system.service, cell, 'arm_cancel', 'ns/op', wall, clocks,
        `a loop a thread, ${count} pairs each and batch, from the first start until the last is done`);
    visit.report.samples(system.service, cell, 'process_cpu', 'ns/op', cpu, clocks,
        system.lazyCancel ? 'without the collection that clears the timers of dropped signals' : '');
}

const largest = (values) => values.reduce((most, value) => (value > most ? value : most));
const smallest = (values) => values.reduce((least, value) => (value < least ? value : least));

/** A worker thread that answers one question at a time. */
class Peer {
    #worker;

    constructor(gate) {
        this.#worker = new Worker(new URL('./scaling_worker.mjs', import.meta.url), { workerData: gate });
    }

    ask(question) {
        return new Promise((resolve, reject) => {
            this.#worker.once('error', reject);
            this.#worker.once('message', (answer) => {
                this.#worker.off('error', reject);
                resolve(answer);
            });
            this.#worker.postMessage(question);
        });
    }

    stop() {
        return this.#worker.terminate();
    }
}
