// Package machine is what the host knows of the machine it runs on: memory, its pressure, and a guess of its speed.
//
// Invariants: everything is read anew at each call, from the system and from the control group that limits this process
// (versions 1 and 2); what the system does not say is zero or false, never a guess. Not for: what a model takes (the plan) or
// who gets it (core/loader).
package machine
