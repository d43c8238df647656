// A round in progress: which arm to run next, or whether to stop.
//
// If the context is complete from the start, the round is decided at the start. If stages reveal
// it, the rule is evaluated at each arm with the context available there. Whether such a round
// explores is drawn at the start, so that it is independent of the context; the rule is still
// evaluated at every arm, because the stop of the rule is recorded.
#pragma once

#include <optional>
#include <vector>

#include "learner.h"

namespace stopwise {

struct RoundState {  // the complete state of a round
    std::vector<double> context;  // coordinates of the context, or a row of features
    std::vector<unsigned> codes;  // of the outputs so far; equal codes mean equal outputs
    std::optional<std::size_t> rule_stop;  // the first arm at which the rule stops
    std::optional<std::size_t> evaluated;  // the last arm at which the rule was evaluated
    bool run_all = false;  // on request, in contrast to exploration
    bool ended = false;
    Trace trace;
};

class Round {
public:
    // Start a round with its initial context, which must be valid.
    Round(Learner& learner, std::vector<double> context);
    explicit Round(RoundState state) : state_(std::move(state)) {}

    // The arm to run next; none to stop.
    std::optional<std::size_t> next(Learner& learner);
    // Add the output of that arm and the numbers it reveals. If these are invalid, return the first
    // invalid coordinate and change nothing.
    std::optional<InvalidCoordinate> add_output(const Learner& learner, unsigned code,
                                                const std::vector<double>& revealed);
    // Run every arm regardless of the rule.
    void run_all() { state_.run_all = true; }
    // Override the last result of `next`: stop or continue, as in a recorded round.
    void set_ended(bool ended) { state_.ended = ended; }
    // Learn from the arms that answered; there must be at least one.
    Learned learn(Learner& learner);

    // The stop of the rule, or the current arm if the rule has not stopped yet.
    std::size_t rule_stop(const Learner& learner) const;
    const RoundState& state() const { return state_; }

private:
    bool stops(Learner& learner);

    RoundState state_;
};

// Whether the codes differ, for each pair of ``n_arms``; 0 for arms without a code.
std::vector<unsigned char> differing(const std::vector<unsigned>& codes, std::size_t n_arms);

}  // namespace stopwise
