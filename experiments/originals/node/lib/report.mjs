// The JSON lines of a visit.

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
        process.stdout.write(`${JSON.stringify(object)}\n`);
    }
}

function rounded(value) {
    if (!Number.isFinite(value)) throw new Error(`JSON has no ${value}`);
    return Math.round(value * 1e6) / 1e6;
}
