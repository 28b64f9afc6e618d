package supervise

const parentDeathSignal = false

func clearParentDeathSignal() {}
