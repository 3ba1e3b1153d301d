package main

// random gives numbers that the seed decides (splitmix64).
type random struct{ state uint64 }

// newRandom gives unrelated sequences for different salts of one seed.
func newRandom(seed, salt uint64) *random {
	return &random{seed ^ salt*0xd6e8feb86659fd93}
}

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below gives a number from 0 up to, not including, bound, which must not be 0.
func (r *random) below(bound uint64) uint64 {
	return r.next() % bound
}

func shuffle[T any](r *random, items []T) {
	for last := len(items) - 1; last > 0; last-- {
		other := r.below(uint64(last) + 1)
		items[last], items[other] = items[other], items[last]
	}
}
