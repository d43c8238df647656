// A round in progress: which arm to run next, or to stop.
//
// Where the complete context is known from the start, the round is decided then. Where stages reveal
// it, each arm i is judged by what is known there. Whether such a round goes on to the last arm at
// random is drawn before anything is known, so that it depends on nothing; the rule is still asked at
// every arm, to know where it would have stopped.
#pragma once

#include <optional>
#include <vector>

#include "learner.h"

namespace stopwise {

struct RoundState {  // all of a round, as plain values
    std::vector<double> known;  // numbers of the context, or of a row of features
    std::vector<unsigned> codes;  // of the outputs so far, equal where these are
    std::optional<std::size_t> rule_stop;  // the first arm at which the rule would stop
    std::optional<std::size_t> judged;     // the last arm at which the rule was asked
    bool told = false;   // to run every arm: not by chance
    bool ended = false;
    Trace trace;
};

class Round {
public:
    // Start a round by what is known before the first arm, which the maps do not refuse.
    Round(Learner& learner, std::vector<double> known);
    explicit Round(RoundState state) : state_(std::move(state)) {}

    // The arm to run now, or none: stop here.
    std::optional<std::size_t> next(Learner& learner);
    // Add the output of that arm, and the numbers it reveals. Returns the reason if these are invalid;
    // then nothing changes.
    std::optional<Refusal> give(const Learner& learner, unsigned code,
                                const std::vector<double>& revealed);
    // Run every arm, whatever the rule says.
    void run_all() { state_.told = true; }
    // End here, or go on, as a record says, where `next` has just decided otherwise.
    void follow(bool ended) { state_.ended = ended; }
    // Let the learner learn from the arms that answered, one at least.
    Learned learn(Learner& learner);

    // Where the rule itself stops, as far as is known.
    std::size_t rule_stop(const Learner& learner) const;
    const RoundState& state() const { return state_; }

private:
    bool stops(Learner& learner);

    RoundState state_;
};

// For each pair of ``n_arms`` whether the codes differ; 0 for arms without one.
std::vector<unsigned char> differing(const std::vector<unsigned>& codes, std::size_t n_arms);

}  // namespace stopwise
