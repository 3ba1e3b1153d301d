// Sends an empty message after each of the pauses that it is told, ms: by blocking its own thread, which rounds to
// microseconds where a timer of the loop rounds to milliseconds.
import { parentPort } from 'node:worker_threads';

const word = new Int32Array(new SharedArrayBuffer(4));

parentPort.on('message', (pausesMs) => {
    for (const ms of pausesMs) {
        Atomics.wait(word, 0, 0, ms);
        parentPort.postMessage(null);
    }
});
