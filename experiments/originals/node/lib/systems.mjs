// The systems, by the names of the report. Each has
//   pairs(n)         n times: arm 1 s and end it in time, as its users do; a promise where the pair needs one
//   arm(ms, onFire)  arms one and returns the function that ends it in time
//   ready            an operation that is done at once, n times: bare and with the timeout; or why there is none
//   lazyCancel       true if what was ended stays in the runtime for a while
//   activeTimeouts   true if what it has armed shows in the runtime's list of active timeouts

const PAIR_MS = 1_000;
const CALLBACK = 'a callback is armed beside the operation: it has no first poll to time';

/** Timeouts that fired although their pair had ended them. */
export const fired = { count: 0 };

/** The callback of timeouts that must not fire. */
export function never() {
    fired.count += 1;
}

function setTimeoutPairs(count) {
    for (let i = 0; i < count; i += 1) clearTimeout(setTimeout(never, PAIR_MS));
}

/** What fetch does with a signal, without the fetch: listen for the abort while working, then stop listening. */
function abortSignalPairs(count) {
    for (let i = 0; i < count; i += 1) {
        const signal = AbortSignal.timeout(PAIR_MS);
        signal.addEventListener('abort', never);
        signal.removeEventListener('abort', never);
    }
}

function expiry(ms, onTimer) {
    return new Promise((_, reject) => {
        onTimer(setTimeout(() => reject(new Error('timed out')), ms));
    });
}

/** The careful form: the timer is cleared once the race is over. */
async function race(operation, ms) {
    let timer;
    try {
        return await Promise.race([operation, expiry(ms, (started) => { timer = started; })]);
    } finally {
        clearTimeout(timer);
    }
}

/** The form that is often written: the timer stays until it fires, with the promises that it rejects. */
export function raceUncleared(operation, ms) {
    return Promise.race([operation, expiry(ms, () => {})]);
}

function pending() {
    let finish;
    const operation = new Promise((resolve) => { finish = resolve; });
    return { operation, finish };
}

async function promiseRacePairs(count) {
    for (let i = 0; i < count; i += 1) {
        const { operation, finish } = pending();
        const result = race(operation, PAIR_MS);
        finish(i);
        await result;
    }
}

async function interruptible(signal) {
    signal?.throwIfAborted();
    return 1;
}

const done = Promise.resolve(1);

export const systems = [
    {
        service: 'original/node/set_timeout',
        lazyCancel: false,
        activeTimeouts: true,
        pairs: setTimeoutPairs,
        arm(ms, onFire) {
            const timer = setTimeout(onFire, ms);
            return () => clearTimeout(timer);
        },
        ready: CALLBACK,
    },
    {
        service: 'original/node/abort_signal',
        lazyCancel: true,
        activeTimeouts: false,
        pairs: abortSignalPairs,
        arm(ms, onFire) {
            const signal = AbortSignal.timeout(ms);
            signal.addEventListener('abort', onFire);
            return () => signal.removeEventListener('abort', onFire);
        },
        ready: {
            async bare(count) {
                for (let i = 0; i < count; i += 1) await interruptible(undefined);
            },
            async timed(count) {
                for (let i = 0; i < count; i += 1) await interruptible(AbortSignal.timeout(PAIR_MS));
            },
        },
    },
    {
        service: 'original/node/promise_race',
        lazyCancel: false,
        activeTimeouts: true,
        pairs: promiseRacePairs,
        arm(ms, onFire) {
            const { operation, finish } = pending();
            race(operation, ms).catch(onFire);
            return finish;
        },
        ready: {
            async bare(count) {
                for (let i = 0; i < count; i += 1) await done;
            },
            async timed(count) {
                for (let i = 0; i < count; i += 1) await race(done, PAIR_MS);
            },
        },
    },
];
