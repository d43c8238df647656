#include "pending_labels.h"

#include <algorithm>
#include <utility>

namespace stopwise {

namespace {

// bounds the memory; equals the limit of the service's list
constexpr std::size_t kMaxPending = 10'000;

}  // namespace

std::int64_t PendingLabels::missing() const {
    return dropped_ + std::count_if(pending_.begin(), pending_.end(),
                                    [](const PendingLabel& label) { return label.missing; });
}

void PendingLabels::add(PendingLabel label, const OnMissing& on_missing) {
    pending_.push_back(std::move(label));
    const auto answered = std::min(static_cast<std::size_t>(answered_), kMaxPending);
    const std::size_t max_uncounted = std::min(answered * answered, kMaxPending);
    auto uncounted = static_cast<std::size_t>(
        std::count_if(pending_.begin(), pending_.end(),
                      [](const PendingLabel& label) { return !label.missing; }));
    for (PendingLabel& pending : pending_) {
        if (uncounted <= max_uncounted) break;
        if (pending.missing) continue;
        pending.missing = true;
        --uncounted;
        on_missing(pending);
    }
    if (pending_.size() <= kMaxPending) return;
    if (!pending_.front().missing) on_missing(pending_.front());
    pending_.pop_front();
    ++dropped_;
}

std::optional<PendingLabel> PendingLabels::take(std::int64_t round, const OnMissing& on_missing) {
    const auto match =
        std::find_if(pending_.begin(), pending_.end(),
                     [&](const PendingLabel& label) { return label.request.round == round; });
    if (match == pending_.end()) return {};
    for (auto before = pending_.begin(); before != match; ++before) {
        if (before->missing) continue;
        before->missing = true;
        on_missing(*before);
    }
    PendingLabel answered = std::move(*match);
    pending_.erase(match);
    ++answered_;
    return answered;
}

std::size_t PendingLabels::nbytes() const {
    std::size_t n = 0;
    for (const PendingLabel& label : pending_) {
        n += sizeof(PendingLabel) + label.row.size() * sizeof(double) + label.differ.size();
    }
    return n;
}

void PendingLabels::serialize(Archive& archive, std::size_t n_arms, std::size_t width,
                              std::int64_t rounds, double largest) {
    archive.count(answered_, kMaxCount, "number of labels");
    archive.count(dropped_, kMaxCount, "number of labels");
    std::size_t n = pending_.size();
    const std::size_t pairs = n_arms * (n_arms - 1) / 2;
    const std::int64_t max_items =
        archive.reading() ? archive.max_items(width * sizeof(double)) : kMaxCount;
    archive.count(n, std::min(static_cast<std::int64_t>(kMaxPending), max_items),
                  "number of labels");
    if (archive.reading()) pending_.assign(n, PendingLabel{});
    std::int64_t before = -1;
    for (PendingLabel& label : pending_) {
        archive.between(&label.request.probability, 1, kMinProbability, 1.0, "probability");
        archive.between(&label.request.explored, 1, 0.0, 1.0, "probability");
        archive.count(label.request.round, rounds, "round");
        archive.check(label.request.round > before, "request");
        before = label.request.round;
        archive.count(label.arms, static_cast<std::int64_t>(n_arms), "arm index");
        archive.count(label.rule_stop, static_cast<std::int64_t>(n_arms) - 1, "arm index");
        archive.check(label.arms > 1 && label.rule_stop < label.arms, "arm index");
        archive.count(label.missing, 1, "missing label flag");
        if (archive.reading()) {
            label.row.assign(width, 0.0);
            label.differ.assign(pairs, 0);
        }
        archive.between(label.row.data(), width, -largest, largest, "feature");
        archive.pass(label.differ.data(), pairs);
        for (const unsigned char differ : label.differ) archive.check(differ <= 1, "disagreement");
    }
}

}  // namespace stopwise
