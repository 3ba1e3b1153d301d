package timerbench.originals;

/** A benchmark that also makes its pairs in bursts, one each millisecond, so that the system can keep up. */
interface Paced {
    int BURST_PAIRS = 100;

    /** One burst; the pace waits before it, outside the timed part. */
    Object burst(Pace pace);
}
