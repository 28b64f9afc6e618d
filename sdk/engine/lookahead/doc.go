// Package lookahead decides how many tokens are drafted, and looks drafts up in a row's own text. It knows no model.
//
// Drafting pays when tokens that the model agrees with come cheaper in one forward than in steps of their own. Both sides are
// measured: Value learns how long plain steps and verifying forwards last, how often drafts of each class are accepted, and
// answers with the depths that give the most tokens a second; zero is plain decoding.
//
// Invariants:
//   - what estimates get wrong is bounded: a Value keeps an account of the time that drafting gained and lost against plain
//     steps, and drafts on trial only from what 1.5 % of plain decoding has earned. So decode is never much below 0.98 of plain,
//     whatever is proposed;
//   - a draft that loses is parked, and tried again at intervals that double while it goes on losing.
//
// Not for: what drafts (sdk/engine's Drafter), whether a draft is accepted (the model's own sample).
package lookahead
