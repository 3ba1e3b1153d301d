// One visit of an experiment: what is wanted of it and its source of chance.
import { systems } from './systems.mjs';

const BATCHES_QUICK = 5;
const BATCHES_FULL = 10;

export class Visit {
    #state;

    constructor(options, report) {
        this.full = options.full;
        this.report = report;
        this.wanted = options.systems;
        this.#state = (options.seed * 1_000_003 + options.round) >>> 0;
    }

    /** Samples a case. */
    get batches() {
        return this.full ? BATCHES_FULL : BATCHES_QUICK;
    }

    /** The systems that were asked for. */
    get systems() {
        return systems.filter((system) => this.wants(system.service));
    }

    wants(service) {
        return this.wanted.length === 0 || this.wanted.some((part) => service.includes(part));
    }

    /** Uniform in [0, 1): a 32-bit mix of a counter (murmur3's finaliser), the same for the same seed and round. */
    random() {
        this.#state = (this.#state + 0x9e3779b9) >>> 0;
        let mixed = this.#state;
        mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
        mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
        return ((mixed ^ (mixed >>> 16)) >>> 0) / 2 ** 32;
    }

    /** A copy in random order. */
    shuffled(values) {
        const order = [...values];
        for (let i = order.length - 1; i > 0; i -= 1) {
            const other = Math.floor(this.random() * (i + 1));
            [order[i], order[other]] = [order[other], order[i]];
        }
        return order;
    }
}
