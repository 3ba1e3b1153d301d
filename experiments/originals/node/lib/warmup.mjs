// Warms a loop up and finds how many turns of it make a batch.
import { nowNs } from './clocks.mjs';

const WARM_NS = 500e6;
const BATCH_NS = 10e6;
const CHUNK = 1_000;

/** Runs loop(n) for half a second. Returns the n of a batch of about 10 ms, never below 1 000. */
export async function calibrate(loop) {
    const start = nowNs();
    let chunkNs = 0;
    let now = start;
    while (Number(now - start) < WARM_NS) {
        const before = now;
        await loop(CHUNK);
        now = nowNs();
        // The last chunks decide: by then the code is compiled. A collection in one of them is smoothed out.
        const took = Number(now - before);
        chunkNs = chunkNs === 0 ? took : 0.9 * chunkNs + 0.1 * took;
    }
    return Math.max(CHUNK, Math.round((BATCH_NS / chunkNs) * CHUNK));
}
