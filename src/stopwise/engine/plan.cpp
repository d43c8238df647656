#include "plan.h"

#include <algorithm>

namespace stopwise {

namespace {

constexpr double kPrecision = 1.0 / 16.0;  // of other features than `StandardMap`: a logit of ±4

}  // namespace

Plan::Plan(const Options& options, const FeatureMaps& maps)
    : Options(options), width(maps.width()), reveals_(maps.revealed()) {
    precision = ridge.value_or(maps.prior_precision().value_or(kPrecision));
    for (std::size_t slot = 0; slot < maps.slots(); ++slot) {
        n_features = std::max(n_features, static_cast<double>(maps.slot(slot).n_features));
    }
    const auto ask = [&](std::size_t slot, std::size_t arm, std::size_t from) {
        const Scope scope{maps.offset(slot), maps.slot(slot).n_features, arm, from,
                          maps.linear(slot)};
        // Questions that read the same features in the same rounds have the same V.
        const auto same = std::find(grams.begin(), grams.end(), scope);
        questions.push_back(static_cast<std::size_t>(same - grams.begin()));
        if (same == grams.end()) grams.push_back(scope);
    };
    for (std::size_t arm = 0; rule->of_arms() && arm < n_arms; ++arm) ask(0, arm, arm);
    for (std::size_t i = 0; i < n_arms; ++i) {
        for (std::size_t j = i + 1; j < n_arms; ++j) {
            thresholds.push_back(rule->threshold(gap(i, j)));
            if (rule->of_arms()) continue;
            // (i, j) asks whether i and j disagree, or j and the last arm.
            const std::size_t arm = rule->against_last() ? last() : j;
            const std::size_t seen_at = rule->against_last() && j < last() ? j : i + 1;
            ask(maps.slot_of_pair(pair(i, j)), arm, reveals_ ? seen_at : arm);
        }
    }
}

std::vector<std::size_t> Plan::answered_from() const {
    std::vector<std::size_t> stops;
    for (const std::size_t g : questions) stops.push_back(grams[g].from);
    return stops;
}

}  // namespace stopwise
