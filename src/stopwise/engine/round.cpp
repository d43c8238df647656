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

Round::Round(Learner& learner, std::vector<double> context) {
    state_.context = std::move(context);
    if (learner.maps().revealed()) {
        learner.begin(state_.trace);
    } else {
        learner.decide({state_.context.data()}, state_.trace);
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
    if (!state_.rule_stop && state_.evaluated != arm) {
        state_.evaluated = arm;
        const std::vector<unsigned char> differ = differing(state_.codes, learner.options().n_arms);
        const PartialContext partial{state_.context.data(), answered, differ.data()};
        if (learner.should_stop(partial, arm, state_.trace)) state_.rule_stop = arm;
    }
    return state_.rule_stop && !state_.trace.explored && !state_.run_all;
}

std::optional<InvalidCoordinate> Round::add_output(const Learner& learner, unsigned code,
                                                   const std::vector<double>& revealed) {
    const std::size_t arm = state_.codes.size();
    std::vector<unsigned> codes = state_.codes;
    codes.push_back(code);
    if (learner.maps().revealed() && arm < learner.options().last()) {
        std::vector<double> context = state_.context;
        context.insert(context.end(), revealed.begin(), revealed.end());
        const std::vector<unsigned char> differ = differing(codes, learner.options().n_arms);
        const auto invalid = learner.find_invalid({context.data(), arm + 1, differ.data()});
        if (invalid) return invalid;
        state_.context = std::move(context);
    }
    state_.codes = std::move(codes);
    return std::nullopt;
}

std::size_t Round::rule_stop(const Learner& learner) const {
    if (state_.rule_stop) return *state_.rule_stop;
    // it continued from the last answer
    return std::min(state_.codes.size(), learner.options().last());
}

Learned Round::learn(Learner& learner) {
    const std::size_t stop = state_.codes.size() - 1;
    // Labels are weighted by the exploration probability, and `run_all` is not random.
    const std::size_t stop_of_rule = state_.run_all ? stop : std::min(rule_stop(learner), stop);
    const std::vector<unsigned char> differ = differing(state_.codes, learner.options().n_arms);
    const PartialContext partial{state_.context.data(), stop + 1, differ.data()};
    return learner.observe(partial, {stop, stop_of_rule, differ.data(), true}).value();
}

}  // namespace stopwise
