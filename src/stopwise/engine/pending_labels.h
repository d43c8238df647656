// Label requests that are pending or count as missing.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "archive.h"
#include "kernels.h"

namespace stopwise {

// A request for a label: its sampling probability, and the probability that exploration sent the
// round to the last arm.
struct LabelRequest {
    double probability, explored;
    std::int64_t round;  // number of rounds learned before it
};

// The minimum probability of a request, so that the square of its weight 1/p does not overflow.
inline constexpr double kMinProbability = 1e-40;

struct PendingLabel {
    LabelRequest request{};
    std::size_t arms = 0;  // number of arms that ran
    std::size_t rule_stop = 0;
    bool missing = false;  // whether it counts as missing
    Numbers row;
    std::vector<unsigned char> differ;  // for each pair, whether both ran and disagreed
};

// A request counts as missing once the label of a later request arrives. Requests after the latest
// label may just be late. But if the few labels so far agree by chance, rounds may stop early, and
// no later label would arrive. So after n labels, at most n² requests are pending without counting
// as missing: none before the first label, one after it, a hundred after ten. A missing request
// counts as missing until its label arrives (docs/labels-method.md).
class PendingLabels {
public:
    using OnMissing = std::function<void(const PendingLabel&)>;

    const std::deque<PendingLabel>& pending() const { return pending_; }
    // The number of missing labels, including those dropped from the list.
    std::int64_t missing() const;

    // Add a request; calls ``on_missing`` for each request that newly counts as missing.
    void add(PendingLabel label, const OnMissing& on_missing);

    // Remove and return the request of a round whose label arrived; {} if it is not pending. Calls
    // ``on_missing`` for each request that newly counts as missing.
    std::optional<PendingLabel> take(std::int64_t round, const OnMissing& on_missing);

    std::size_t nbytes() const;
    void serialize(Archive& archive, std::size_t n_arms, std::size_t width, std::int64_t rounds,
                   double largest);

private:
    std::deque<PendingLabel> pending_;  // ordered by round
    std::int64_t answered_ = 0, dropped_ = 0;
};

}  // namespace stopwise
