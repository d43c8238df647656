#include "round.h"

#include <algorithm>

namespace stopwise {

std::vector<unsigned char> differing(const std::vector<unsigned>& codes, std::size_t n_arms) {
    std::vector<unsigned char> differ;
    for (std::size_t i = 0; i < n_arms; ++i) {
        for (std::size_t j = i + 1; j < n_arms; ++j) {
            differ.push_back(j < codes.size() && codes[i] != codes[j]);
        }
    }
    return differ;
}

Round::Round(Learner& learner, std::vector<double> known) {
    state_.known = std::move(known);
    if (learner.maps().revealed()) {
        learner.begin(state_.trace);
    } else {
        learner.decide({state_.known.data()}, state_.trace);
        state_.rule_stop = state_.trace.rule_stop;
    }
}

std::optional<std::size_t> Round::next(Learner& learner) {
    state_.ended = state_.ended || stops(learner);
    if (state_.ended) return std::nullopt;
    return state_.codes.size();
}

bool Round::stops(Learner& learner) {
    const std::size_t answered = state_.codes.size();
    if (answered == 0) return false;
    const std::size_t arm = answered - 1;
    if (arm == learner.options().last()) return true;
    if (!learner.maps().revealed()) return arm >= state_.trace.stop;
    if (!state_.rule_stop && state_.judged != arm) {
        state_.judged = arm;
        const std::vector<unsigned char> differ = differing(state_.codes, learner.options().n_arms);
        const Known known{state_.known.data(), answered, differ.data()};
        if (learner.should_stop(known, arm, state_.trace)) state_.rule_stop = arm;
    }
    return state_.rule_stop && !state_.trace.explored && !state_.told;
}

std::optional<Refusal> Round::give(const Learner& learner, unsigned code,
                                   const std::vector<double>& revealed) {
    const std::size_t arm = state_.codes.size();
    std::vector<unsigned> codes = state_.codes;
    codes.push_back(code);
    if (learner.maps().revealed() && arm < learner.options().last()) {
        std::vector<double> known = state_.known;
        known.insert(known.end(), revealed.begin(), revealed.end());
        const std::vector<unsigned char> differ = differing(codes, learner.options().n_arms);
        const auto refused = learner.refusal({known.data(), arm + 1, differ.data()});
        if (refused) return refused;
        state_.known = std::move(known);
    }
    state_.codes = std::move(codes);
    return std::nullopt;
}

std::size_t Round::rule_stop(const Learner& learner) const {
    if (state_.rule_stop) return *state_.rule_stop;
    return std::min(state_.codes.size(), learner.options().last());  // it went on from the last answer
}

Learned Round::learn(Learner& learner) {
    const std::size_t stop = state_.codes.size() - 1;
    // Labels are weighted by the chance of going on at random, and where it was told to, there was none.
    const std::size_t ruled = state_.told ? stop : std::min(rule_stop(learner), stop);
    const std::vector<unsigned char> differ = differing(state_.codes, learner.options().n_arms);
    const Known known{state_.known.data(), stop + 1, differ.data()};
    return learner.observe(known, {stop, ruled, differ.data(), true}).value();
}

}  // namespace stopwise
