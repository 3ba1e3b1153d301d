// Nothing of its own: what it is compiled with is the precompiled header that the experiments share.
