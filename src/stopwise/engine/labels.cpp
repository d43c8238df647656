#include "labels.h"

#include <algorithm>

namespace stopwise {

namespace {

// heuristic: share of the labels that are requested first …
constexpr double kEarlyShare = 1.0 / 3.0;
// … and their number if `labels` is a share of rounds
constexpr double kEarlyLabels = 30.0;

}  // namespace

Labels::Labels(std::shared_ptr<const Config> config)
    : config_(config), gains_(config), trial_(config) {}

// Sample requests among rounds with disagreements, with a higher probability early. A round that
// explored reveals arms beyond the rule's stop, and is always requested.
std::optional<LabelRequest> Labels::request(const Observation& round, std::int64_t rounds) {
    if (config_->labels == 0.0 || !round.may_request) return std::nullopt;
    trial_.advance(rounds, requests_);
    const bool is_count = config_->labels >= 1.0;
    if (is_count && static_cast<double>(requested_) >= config_->labels) return std::nullopt;
    trial_.add_costs(round.rule_stop);
    bool disagreed = false;
    for (std::size_t j = 1; j <= round.stop; ++j) {
        disagreed = disagreed || round.answers[config_->pair(0, j)] != 0;
    }
    if (!disagreed) return std::nullopt;
    ++disagreed_;
    const double n_early = is_count ? kEarlyShare * config_->labels : kEarlyLabels;
    double probability = std::min(1.0, n_early / static_cast<double>(disagreed_));
    if (!is_count) probability = std::max(probability, config_->labels);
    const bool continued = round.rule_stop < round.stop;
    if (!continued && draw_of(config_->seed, rounds, kLabelRequest) >= probability) {
        return std::nullopt;
    }
    ++requested_;
    trial_.count_request();
    if (round.rule_stop == config_->last()) return LabelRequest{probability, 0.0, rounds};
    const double explored = explore_rate(*config_, rounds);
    return LabelRequest{explored + (1.0 - explored) * probability, explored, rounds};
}

void Labels::expect(const LabelRequest& request, const Observation& round,
                    const std::vector<double>& row) {
    PendingLabel label{request, round.stop + 1, round.rule_stop, false, row, {}};
    label.differ.assign(config_->n_pairs(), 0);
    for (std::size_t j = 1; j <= round.stop; ++j) {
        for (std::size_t i = 0; i < j; ++i) {
            const std::size_t k = config_->pair(i, j);
            label.differ[k] = round.answers[k] != 0;
        }
    }
    requests_.add(std::move(label),
                  [&](const PendingLabel& missing) { gains_.add_missing(missing); });
    gains_.refit();
}

void Labels::learn(const double* row, const Label& label) {
    if (label.request) {
        const auto answered =
            requests_.take(label.request->round,
                           [&](const PendingLabel& missing) { gains_.add_missing(missing); });
        if (answered && answered->missing) gains_.remove_missing(*answered);
    }
    gains_.learn(row, label.n, label.right, label.differ);
    gains_.refit();
    ++learned_;
    if (label.request) trial_.learn(*label.request, label.n, label.rule_stop, label.right);
}

void Labels::serialize(Archive& archive, std::int64_t rounds) {
    for (std::int64_t* n : {&learned_, &requested_, &disagreed_}) {
        archive.count(*n, kMaxCount, "number of labels");
    }
    trial_.serialize(archive);
    gains_.serialize(archive);
    requests_.serialize(archive, config_->n_arms, config_->width, rounds, kMaxFeature);
    archive.check(gains_.contain(requests_), "number of missing labels");
}

}  // namespace stopwise
