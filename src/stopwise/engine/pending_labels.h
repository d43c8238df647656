// Labels that were asked for and have not come.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "archive.h"
#include "kernels.h"

namespace stopwise {

// A label that is asked for: the probability that it was, and the probability with which the round
// went to the last arm whatever the rule said.
struct LabelRequest {
    double probability, explored;
    std::int64_t round;  // how many rounds were learned before it
};

// The least probability of a request: the square of its weight, 1/p, is far from overflow.
inline constexpr double kMinProbability = 1e-40;

struct PendingLabel {
    LabelRequest request{};
    std::size_t arms = 0;  // that ran
    std::size_t rule_stop = 0;
    bool missing = false;  // counts as missing
    Numbers row;
    std::vector<unsigned char> differ;  // of each pair, whether both ran and disagreed
};

// A request may be late or never answered. It counts as missing once a later one was answered: it
// was passed over. The requests after the latest answer may just be late. But if the few answers so
// far agree by chance, rounds may end early, and no later answer would come. So only n² of them wait
// uncounted after n answers: none before the first, one after it, a hundred after ten. Once a
// request counts as missing, it does until its answer comes (docs/labels.md).
class PendingLabels {
public:
    using Count = std::function<void(const PendingLabel&)>;

    const std::deque<PendingLabel>& pending() const { return pending_; }
    // How many count as missing, with those that were dropped from the list.
    std::int64_t missing() const;

    // Add a request; ``count`` is called with each that counts as missing from now on.
    void add(PendingLabel label, const Count& count);

    // Take out the request of a round that is answered; {} if it is not waiting. ``count`` is called
    // with each that was passed over.
    std::optional<PendingLabel> take(std::int64_t round, const Count& count);

    std::size_t nbytes() const;
    void serialize(Archive& archive, std::size_t n_arms, std::size_t width, std::int64_t rounds,
                 double largest);

private:
    std::deque<PendingLabel> pending_;  // in the order of their rounds
    std::int64_t answered_ = 0, dropped_ = 0;
};

}  // namespace stopwise
