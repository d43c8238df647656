// Python bindings of rounds in progress and of the results of learning.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cmath>

#include "learner.h"

namespace stopwise {
namespace {

// A round of a learner that may be shared with other rounds and threads.
struct SharedRound {
    std::shared_ptr<SharedLearner> learner;
    Round round;
};

SharedRound start(std::shared_ptr<SharedLearner> learner, std::vector<double> context) {
    const FeatureMaps& maps = *learner->maps;
    require(maps.revealed() || context.size() == maps.caller_dim(),
            "the context has the wrong length");
    Round round = learner->call([&] { return Round(learner->value, std::move(context)); });
    return {std::move(learner), std::move(round)};
}

std::optional<std::size_t> next(SharedRound& shared) {
    return shared.learner->call([&] { return shared.round.next(shared.learner->value); });
}

// Slot and coordinate of an invalid number, and whether it is finite.
std::optional<std::tuple<std::size_t, std::size_t, bool>> add_output(
    SharedRound& shared, unsigned code, const std::vector<double>& revealed) {
    const FeatureMaps& maps = *shared.learner->maps;
    const auto invalid = shared.learner->short_call([&] {
        const RoundState& state = shared.round.state();
        const std::size_t arm = state.codes.size();
        require(arm < maps.n_arms(), "all arms have answered");
        if (maps.revealed() && arm + 1 < maps.n_arms()) {
            check_dim(maps, state.context.size() + revealed.size(), arm + 1);
        }
        return shared.round.add_output(shared.learner->value, code, revealed);
    });
    if (!invalid) return std::nullopt;
    return std::make_tuple(invalid->slot, invalid->coordinate, invalid->finite);
}

Learned learn(SharedRound& shared) {
    return shared.learner->call([&] {
        require(!shared.round.state().codes.empty(), "no arm has answered yet");
        Learned learned = shared.round.learn(shared.learner->value);
        shared.learner->update_slow();
        return learned;
    });
}

using RoundTuple =
    std::tuple<std::vector<double>, std::vector<unsigned>, std::optional<std::size_t>,
               std::optional<std::size_t>, bool, bool>;

RoundTuple values_of(const RoundState& state) {
    return {state.context,   state.codes,   state.rule_stop,
            state.evaluated, state.run_all, state.ended};
}

// A locked read of the state of a round.
template <class Function>
auto locked_read(Function function) {
    return [function](SharedRound& shared) {
        return shared.learner->short_call([&] { return function(shared.round.state()); });
    };
}

SharedRound resume(std::shared_ptr<SharedLearner> learner, const RoundTuple& values,
                   const Trace& trace) {
    const auto& [context, codes, rule_stop, evaluated, run_all, ended] = values;
    const FeatureMaps& maps = *learner->maps;
    const std::size_t n_arms = maps.n_arms();
    require(codes.size() <= n_arms && rule_stop.value_or(0) < n_arms &&
                evaluated.value_or(0) < n_arms && trace.stop < n_arms &&
                trace.rule_stop <= trace.stop &&
                trace.comparisons.size() == n_arms * (n_arms - 1) / 2,
            "the round is from another cascade");
    check_dim(maps, context.size(), codes.size());
    for (const double number : context) require(std::isfinite(number), "context must be finite");
    const std::vector<unsigned char> differ = differing(codes, n_arms);
    require(!maps.find_invalid({context.data(), codes.size(), differ.data()}),
            "the context is invalid for the features");
    return {std::move(learner),
            Round({context, codes, rule_stop, evaluated, run_all, ended, trace})};
}

}  // namespace

void bind_round(nb::module_& m) {
    nb::class_<Learned>(m, "Learned")
        .def_prop_ro("request",
                     [](const Learned& learned)
                         -> std::optional<std::tuple<double, double, std::int64_t>> {
                         if (!learned.request) return std::nullopt;
                         const auto [probability, explored, round] = *learned.request;
                         return std::make_tuple(probability, explored, round);
                     })
        .def_ro("changes", &Learned::changes);
    nb::class_<SharedRound>(m, "Round")
        .def("next", &next)
        .def("add_output", &add_output, "code"_a, "revealed"_a)
        .def("run_all",
             [](SharedRound& shared) {
                 shared.learner->short_call([&] { shared.round.run_all(); });
             })
        .def("set_ended",
             [](SharedRound& shared, bool ended) {
                 shared.learner->short_call([&] { shared.round.set_ended(ended); });
             },
             "ended"_a)
        .def("learn", &learn)
        .def("state", locked_read([](const RoundState& state) { return values_of(state); }))
        .def_prop_ro("context", locked_read([](const RoundState& state) { return state.context; }))
        .def_prop_ro("answered",
                     locked_read([](const RoundState& state) { return state.codes.size(); }))
        .def_prop_ro("rule_stop",
                     [](SharedRound& shared) {
                         return shared.learner->short_call(
                             [&] { return shared.round.rule_stop(shared.learner->value); });
                     })
        .def_prop_ro("trace", locked_read([](const RoundState& state) { return state.trace; }));
    m.def("start_round", &start, "learner"_a, "context"_a);
    m.def("resume_round", &resume, "learner"_a, "values"_a, "trace"_a);
}

}  // namespace stopwise
