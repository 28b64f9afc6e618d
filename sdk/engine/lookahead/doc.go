// Package lookahead decides how many tokens are drafted, and looks drafts up in a row's own text. It knows no model.
//
// Drafting pays when tokens that the model agrees with come cheaper in one forward than in steps of their own. Both sides are
// measured: Value learns how long plain steps, proposals and verifying forwards last, how often drafts of each class are accepted, and
// answers with the depths that give the most tokens a second; zero is plain decoding. What a drafter proposes at no cost is seen to be
// right or wrong before any of it is checked.
//
// Invariants:
//   - a round is drafted only where every row that decodes in it, drafted for or not, can lose what the round takes if no draft is right:
//     from its purse, which 2 % of its own plain steps fill and what drafts gained it, or in debt to a fund, one step deep, or two where
//     it is one of several and should gain. The fund has two steps for each row to begin with, and 1 % of all plain steps. So a row loses
//     at most 2 % and its debt, all rows of a process 3 % and what the fund began with, and beyond that how much one round cost more
//     than could be known;
//   - a drafter that would lose if it were always right is never asked;
//   - one that loses is parked, and tried again, from the rows' purses alone, at intervals that double while it goes on losing.
//
// Not for: what drafts (sdk/engine's Drafter), whether a draft is accepted (the model's own sample).
package lookahead
