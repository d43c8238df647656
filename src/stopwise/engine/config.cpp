#include "config.h"

#include <algorithm>

namespace stopwise {

namespace {

constexpr double kPrecision = 1.0 / 16.0;  // for features other than `StandardMap`: logits of ±4

}  // namespace

Config::Config(const Options& options, const FeatureMaps& maps)
    : Options(options), width(maps.width()), reveals_(maps.revealed()) {
    precision = ridge.value_or(maps.prior_precision().value_or(kPrecision));
    for (std::size_t slot = 0; slot < maps.slots(); ++slot) {
        n_features = std::max(n_features, static_cast<double>(maps.slot(slot).n_features));
    }
    const auto add_question = [&](std::size_t slot, std::size_t arm, std::size_t from) {
        const Scope scope{maps.offset(slot), maps.slot(slot).n_features, arm, from,
                          maps.linear(slot)};
        // Questions that read the same features in the same rounds have the same V.
        const auto same = std::find(grams.begin(), grams.end(), scope);
        questions.push_back(static_cast<std::size_t>(same - grams.begin()));
        if (same == grams.end()) grams.push_back(scope);
    };
    for (std::size_t arm = 0; rule->per_arm() && arm < n_arms; ++arm) add_question(0, arm, arm);
    for (std::size_t i = 0; i < n_arms; ++i) {
        for (std::size_t j = i + 1; j < n_arms; ++j) {
            thresholds.push_back(rule->threshold(gap(i, j)));
            if (rule->per_arm()) continue;
            // Question (i, j): do i and j disagree or, with `compares_with_last`, j and the last
            // arm?
            const std::size_t arm = rule->compares_with_last() ? last() : j;
            const std::size_t seen_at = rule->compares_with_last() && j < last() ? j : i + 1;
            add_question(maps.slot_of_pair(pair(i, j)), arm, reveals_ ? seen_at : arm);
        }
    }
}

std::vector<std::size_t> Config::answered_from() const {
    std::vector<std::size_t> stops;
    for (const std::size_t g : questions) stops.push_back(grams[g].from);
    return stops;
}

}  // namespace stopwise
