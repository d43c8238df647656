#include "first_rounds.h"

#include <algorithm>
#include <limits>

#include "learner.h"

namespace stopwise {

namespace {

constexpr double kMaxDouble = std::numeric_limits<double>::max();

}  // namespace

std::vector<double> FirstRounds::padded_context(const PartialContext& partial,
                                                std::size_t n_available) const {
    std::vector<double> context(partial.context, partial.context + n_available);
    context.resize(context_dim_, 0.0);
    return context;
}

std::vector<unsigned char> FirstRounds::revealed(const unsigned char* differ,
                                                 std::size_t n) const {
    std::vector<unsigned char> revealed;
    for (std::size_t i = 0; i < n_arms_; ++i) {
        for (std::size_t j = i + 1; j < n_arms_; ++j) {
            revealed.push_back(j < n && differ[revealed.size()] != 0);
        }
    }
    return revealed;
}

void FirstRounds::add(const PartialContext& partial, std::size_t n_available,
                      const Observation& round) {
    rounds_.push_back({padded_context(partial, n_available),
                       revealed(round.answers, round.stop + 1), round.stop, round.rule_stop,
                       round.may_request});
}

void FirstRounds::add(const PartialContext& partial, std::size_t n_available, const Label& label) {
    labels_.push_back({rounds_.size(), padded_context(partial, n_available),
                       revealed(label.differ, label.n),
                       {label.right, label.right + label.n},
                       label.rule_stop,
                       label.request});
}

bool FirstRounds::due() const {
    const std::size_t n = rounds_.size();
    return n >= kFirstFit && (n & (n - 1)) == 0;
}

bool FirstRounds::full() const { return rounds_.size() >= kLastFit; }

FeatureMaps FirstRounds::fitted(const FeatureMaps& maps) const {
    std::vector<std::vector<double>> inputs(maps.slots());
    for (std::size_t slot = 0; slot < maps.slots(); ++slot) {
        const std::size_t dim = maps.input_dim(slot);
        for (const Round& round : rounds_) {
            if (maps.revealed() && round.stop < slot) continue;
            const std::size_t before = inputs[slot].size();
            inputs[slot].resize(before + dim);
            const PartialContext partial{round.context.data(), round.stop + 1, round.differ.data()};
            maps.input(slot, partial, inputs[slot].data() + before);
        }
    }
    return maps.fitted(inputs);
}

void FirstRounds::replay(State& state) const {
    auto label = labels_.begin();
    const auto learn_labels = [&](std::size_t rounds) {
        for (; label != labels_.end() && label->after == rounds; ++label) {
            const std::size_t n = label->right.size();
            state.label({label->context.data(), n, label->differ.data()},
                        {n, label->rule_stop, label->right.data(), label->differ.data(),
                         label->request});
        }
    };
    learn_labels(0);
    for (std::size_t t = 0; t < rounds_.size(); ++t) {
        const Round& round = rounds_[t];
        state.observe({round.context.data(), round.stop + 1, round.differ.data()},
                      {round.stop, round.rule_stop, round.differ.data(), round.may_request});
        learn_labels(t + 1);
    }
}

std::size_t FirstRounds::nbytes() const {
    const std::size_t pairs = n_arms_ * (n_arms_ - 1) / 2;
    const std::size_t bytes_each =
        sizeof(RoundLabel) + context_dim_ * sizeof(double) + pairs + n_arms_;
    return bytes_each * (rounds_.size() + labels_.size());
}

void FirstRounds::serialize_values(Archive& archive, std::vector<double>& context,
                                   std::vector<unsigned char>& differ) const {
    if (archive.reading()) {
        context.resize(context_dim_);
        differ.resize(n_arms_ * (n_arms_ - 1) / 2);
    }
    archive.between(context.data(), context.size(), -kMaxDouble, kMaxDouble, "context");
    archive.pass(differ.data(), differ.size());
    for (const unsigned char bit : differ) archive.check(bit <= 1, "disagreement");
}

void FirstRounds::serialize(Archive& archive, std::int64_t rounds) {
    const auto last = static_cast<std::int64_t>(n_arms_) - 1;
    const std::size_t min_bytes = context_dim_ * sizeof(double) + 3 * sizeof(std::int64_t);
    std::size_t n = rounds_.size(), n_labels = labels_.size();
    archive.count(n, rounds, "number of first rounds");
    archive.check(static_cast<std::int64_t>(n) == rounds, "number of first rounds");
    archive.count(n_labels, archive.reading() ? archive.max_items(min_bytes) : kMaxCount,
                  "number of labels");
    if (archive.reading()) {
        archive.check(archive.max_items(min_bytes) >= rounds, "number of first rounds");
        rounds_.resize(n);
        labels_.resize(n_labels);
    }
    for (Round& round : rounds_) {
        serialize_values(archive, round.context, round.differ);
        archive.count(round.stop, last, "arm index");
        archive.count(round.rule_stop, static_cast<std::int64_t>(round.stop), "arm index");
        archive.count(round.may_request, 1, "label request flag");
    }
    std::size_t before = 0;
    for (RoundLabel& label : labels_) {
        archive.count(label.after, rounds, "round of a label");
        archive.check(label.after >= before, "round of a label");
        before = label.after;
        serialize_values(archive, label.context, label.differ);
        std::size_t arms = label.right.size();
        archive.count(arms, last + 1, "number of arms");
        archive.check(arms > 0, "number of arms");
        if (archive.reading()) label.right.resize(arms);
        archive.pass(label.right.data(), arms);
        for (const unsigned char right : label.right) archive.check(right <= 1, "label");
        archive.count(label.rule_stop, last, "arm index");
        bool requested = label.request.has_value();
        archive.count(requested, 1, "label request flag");
        if (archive.reading() && requested) label.request = LabelRequest{};
        if (!requested) continue;
        archive.between(&label.request->probability, 1, kMinProbability, 1.0, "probability");
        archive.between(&label.request->explored, 1, 0.0, 1.0, "probability");
        archive.count(label.request->round, kMaxCount, "round");
    }
}

}  // namespace stopwise
