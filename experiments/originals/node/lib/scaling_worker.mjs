// One thread of the scaling experiment. workerData: a shared word that counts the threads that have arrived at a batch.
import { parentPort, workerData as gate } from 'node:worker_threads';
import { collect, nowNs } from './clocks.mjs';
import { fired, systems } from './systems.mjs';
import { calibrate } from './warmup.mjs';

const named = (service) => systems.find((system) => system.service === service);

/** Returns once all threads of the batch are here. */
function startTogether(workers) {
    if (Atomics.add(gate, 0, 1) + 1 === workers) {
        Atomics.notify(gate, 0);
        return;
    }
    for (let here = Atomics.load(gate, 0); here < workers; here = Atomics.load(gate, 0)) Atomics.wait(gate, 0, here);
}

async function batch(system, pairs, workers) {
    fired.count = 0;
    startTogether(workers);
    const startNs = nowNs();
    await system.pairs(pairs);
    return { startNs, endNs: nowNs(), fired: fired.count };
}

parentPort.on('message', async (question) => {
    if (question.warm !== undefined) {
        const pairs = await calibrate(named(question.warm).pairs);
        await collect();
        parentPort.postMessage(pairs);
    } else if (question.collect) {
        await collect();
        parentPort.postMessage(null);
    } else {
        parentPort.postMessage(await batch(named(question.batch), question.pairs, question.workers));
    }
});
