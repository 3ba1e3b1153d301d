// The command line.

/** A user's mistake; the message says what was wrong and what would be right. */
export class Mistake extends Error {}

/** Returns {mode, experiment, round, seed, full, systems}. Throws a Mistake. */
export function parse(words, experiments, services) {
    const options = { mode: 'visit', systems: [] };
    const rest = [...words];
    const value = (option) => {
        if (rest.length === 0) throw new Mistake(`${option} wants a value after it`);
        return rest.shift();
    };
    const number = (option) => {
        const text = value(option);
        // Digits beyond the largest would be rounded, and two seeds become one.
        if (!/^\d+$/.test(text) || Number(text) > Number.MAX_SAFE_INTEGER) {
            throw new Mistake(`${option} "${text}" is no whole number from 0 to ${Number.MAX_SAFE_INTEGER}`);
        }
        return Number(text);
    };
    while (rest.length > 0) {
        const option = rest.shift();
        switch (option) {
            case '--verify': options.mode = 'verify'; break;
            case '--list': options.mode = 'list'; break;
            case '--quick': options.full = false; break;
            case '--full': options.full = true; break;
            case '--experiment': options.experiment = value(option); break;
            case '--system': options.systems.push(value(option)); break;
            case '--round': options.round = number(option); break;
            case '--seed': options.seed = number(option); break;
            default:
                throw new Mistake(`"${option}" is no option; there are --experiment, --round, --seed, --quick, ` +
                    '--full, --system, --verify and --list');
        }
    }
    if (options.mode === 'visit') complete(options, experiments, services);
    return options;
}

function complete(options, experiments, services) {
    const known = `one of ${experiments.join(', ')}`;
    if (options.experiment === undefined) throw new Mistake(`--experiment is missing; ${known}`);
    if (!experiments.includes(options.experiment)) {
        throw new Mistake(`--experiment "${options.experiment}" is unknown; ${known}`);
    }
    if (options.round === undefined || options.seed === undefined) {
        throw new Mistake('--round and --seed are wanted, each a number');
    }
    if (options.full === undefined) throw new Mistake('--quick or --full is wanted');
    for (const part of options.systems) {
        if (!services.some((service) => service.includes(part))) {
            throw new Mistake(`--system "${part}" matches none of ${services.join(', ')}`);
        }
    }
}
