// Buffer of the first rounds of a policy, to which self-scaling feature maps are fitted.
//
// After 8, 16, … 1,024 rounds, the maps are fitted to the buffered contexts, and the rounds are
// learned again. After the last fit the buffer is dropped.
#pragma once

#include <optional>
#include <vector>

#include "features.h"
#include "labels.h"

namespace stopwise {

class State;

class FirstRounds {
public:
    FirstRounds(std::size_t context_dim, std::size_t n_arms)
        : context_dim_(context_dim), n_arms_(n_arms) {}

    // Add a learned round or label, with the first ``n_available`` coordinates of the context.
    void add(const PartialContext& partial, std::size_t n_available, const Observation& round);
    void add(const PartialContext& partial, std::size_t n_available, const Label& label);

    // The maps are fitted after these numbers of rounds and the powers of two between them.
    static constexpr std::size_t kFirstFit = 8, kLastFit = 1024;

    // Whether a fit is due, and whether it is the last.
    bool due() const;
    bool full() const;

    FeatureMaps fitted(const FeatureMaps& maps) const;
    // Learn all rounds and labels again, in order.
    void replay(State& state) const;

    std::size_t nbytes() const;
    void serialize(Archive& archive, std::int64_t rounds);

private:
    struct Round {
        std::vector<double> context;        // zeros for coordinates that were not revealed
        std::vector<unsigned char> differ;  // for each pair; 0 for arms that did not run
        std::size_t stop = 0, rule_stop = 0;
        bool may_request = false;
    };
    struct RoundLabel {
        std::size_t after = 0;  // the number of rounds before it
        std::vector<double> context;
        std::vector<unsigned char> differ, right;
        std::size_t rule_stop = 0;
        std::optional<LabelRequest> request;
    };

    std::vector<double> padded_context(const PartialContext& partial,
                                       std::size_t n_available) const;
    std::vector<unsigned char> revealed(const unsigned char* differ, std::size_t n) const;
    void serialize_values(Archive& archive, std::vector<double>& context,
                          std::vector<unsigned char>& differ) const;

    std::size_t context_dim_, n_arms_;
    std::vector<Round> rounds_;
    std::vector<RoundLabel> labels_;
};

}  // namespace stopwise
