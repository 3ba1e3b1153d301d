// The JSON lines of a visit.
import { writeSync } from 'node:fs';

const STANDARD_OUTPUT = 1;

/** Writes one object a line to standard output as soon as it is known. */
export class Report {
    failedChecks = 0;

    versions(versions) {
        this.#line({ versions });
    }

    /** Batch means, with the clock's cost beside each. An empty note is left out. */
    samples(service, cell, metric, unit, samples, clockNs, note = '') {
        const row = {
            service, case: cell, metric, unit, samples: samples.map(rounded), clock_ns: clockNs.map(rounded),
        };
        if (note !== '') row.note = note;
        this.#line({ row: { ...row, single_events: false } });
    }

    /** One sample an event; the clock's cost is the same for all. */
    events(service, cell, metric, unit, samples, clockNs, note) {
        const clocks = samples.map(() => rounded(clockNs));
        this.#line({
            row: {
                service, case: cell, metric, unit, samples: samples.map(rounded), clock_ns: clocks, note,
                single_events: true,
            },
        });
    }

    skipped(service, cell, metric, unit, why) {
        this.#line({ row: { service, case: cell, metric, unit, skipped: why } });
    }

    error(service, cell, metric, unit, why) {
        this.#line({ row: { service, case: cell, metric, unit, error: why } });
    }

    check(name, service, ok, detail) {
        if (!ok) this.failedChecks += 1;
        this.#line({ check: { name, service, ok, detail } });
    }

    #line(object) {
        write(JSON.stringify(object));
    }
}

/** Standard output cannot be written: nothing is worth measuring any more. */
export class Unwritable extends Error {}

/** Writes a line to standard output; process.stdout would not tell of a file that took only a part of it. */
export function write(line) {
    let rest = Buffer.from(`${line}\n`);
    while (rest.length > 0) {
        try {
            rest = rest.subarray(writeSync(STANDARD_OUTPUT, rest));
        } catch (failure) {
            if (failure.code !== 'EAGAIN') throw new Unwritable(`standard output cannot be written: ${failure.message}`);
            Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1); // a full pipe that does not block
        }
    }
}

function rounded(value) {
    if (!Number.isFinite(value)) throw new Error(`JSON has no ${value}`);
    return Math.round(value * 1e6) / 1e6;
}
