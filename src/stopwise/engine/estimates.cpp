#include "estimates.h"

#include <algorithm>
#include <cmath>

namespace stopwise {

namespace {

constexpr double kLongest = 1.01;  // ‖φ‖² ≤ 1, with room for rounding

}  // namespace

Estimates::Estimates(std::shared_ptr<const Plan> plan)
    : plan_(std::move(plan)),
      history_(plan_->n_arms, plan_->width, plan_->answered_from(), plan_->rate) {
    std::size_t widest = 0;
    for (const Scope& scope : plan_->grams) {
        grams_.push_back({Factor(scope.dim, std::max(plan_->rule->lam(), kFloor))});
        if (plan_->rate > 0.0) grams_.back().sums.assign(scope.dim * padded(scope.dim), 0.0);
        widest = std::max(widest, padded(scope.dim));
    }
    for (const std::size_t g : plan_->questions) {
        models_.emplace_back(plan_->grams[g].dim, plan_->precision, plan_->rate);
    }
    phi_.assign(widest, 0.0);
}

// Rounds as they count: all, or Σ_k e^{−rate·k}.
double Estimates::effective_rounds() const {
    const auto n = static_cast<double>(rounds_);
    const auto lost = [](double x) {  // 1 − e⁻ˣ, also for small x
        return x < 1e-5 ? x * (1.0 - x / 2.0 + x * x / 6.0) : 1.0 - exp(-x);
    };
    return plan_->rate > 0.0 ? lost(plan_->rate * n) / lost(plan_->rate) : n;
}

double Estimates::radius(std::size_t question) const {
    return plan_->rule->radius(gram_of(question).count, effective_rounds(), plan_->n_features);
}

double Estimates::gram_norm(std::size_t g, const double* phi, double* work) const {
    const Gram& gram = grams_[g];
    if (gram.count == 0.0 && plan_->rule->lam() == 0.0) return kInfinity;
    return std::sqrt(gram.factor.square_norm(phi, work));
}

void Estimates::advance() {
    if (plan_->rate == 0.0) return;
    const auto now = static_cast<double>(rounds_);
    for (std::size_t g = 0; g < grams_.size(); ++g) {
        if (grams_[g].now != now) forget(grams_[g], plan_->grams[g].dim, nullptr, now);
    }
    for (Model& model : models_) model.advance(now);
}

// Let V lose what it loses until ``now``, add a row if one is given, and factor it if anything reads
// it. Its base is not forgotten.
void Estimates::forget(Gram& gram, std::size_t d, const double* phi, double now) const {
    const double share = exp(-plan_->rate * (now - gram.now));
    const std::size_t stride = padded(d);
    gram.now = now;
    gram.count = share * gram.count + (phi != nullptr ? 1.0 : 0.0);
    for (std::size_t c = 0; c < d; ++c) {
        for (std::size_t r = c; r < d; ++r) {
            double& sum = gram.sums[c * stride + r];
            sum = share * sum + (phi != nullptr ? phi[c] * phi[r] : 0.0);
        }
    }
    if (plan_->rule->reads_gram() || (!plan_->forced_rounds && !explored_)) {
        gram.factor = factored(gram.sums, d);
    }
}

Factor Estimates::factored(const Numbers& sums, std::size_t d) const {
    const double base = std::max(plan_->rule->lam(), kFloor);
    Factor factor(d, base);
    Numbers whole = sums;
    for (std::size_t c = 0; c < d; ++c) whole[c * padded(d) + c] += base;
    factor.take(whole, base);
    return factor;
}

Factor Estimates::gram(std::size_t question) const {
    const Gram& gram = gram_of(question);
    return plan_->rate > 0.0 ? factored(gram.sums, plan_->scope_of(question).dim) : gram.factor;
}

void Estimates::learn(const double* row, std::size_t stop, const unsigned char* answers) {
    if (stop >= plan_->grams[0].from) {  // otherwise too soon for any model to learn from
        history_.append(stored_row(row, stop).data(), stop, answers, rounds_);
        const double now = static_cast<double>(rounds_) + 1.0;
        for (std::size_t g = 0; g < grams_.size(); ++g) {
            const Scope& scope = plan_->grams[g];
            std::copy_n(row + scope.offset, scope.dim, phi_.begin());
            std::fill(phi_.begin() + static_cast<std::ptrdiff_t>(scope.dim), phi_.end(), 0.0);
            if (scope.arm <= stop && plan_->rate > 0.0) {
                forget(grams_[g], scope.dim, phi_.data(), now);
            } else if (scope.arm <= stop) {
                grams_[g].factor.add(phi_.data(), 1.0);
                grams_[g].count += 1.0;
            }
            for (std::size_t k = 0; scope.from <= stop && k < models_.size(); ++k) {
                if (plan_->questions[k] == g) models_[k].learn(phi_.data(), answers[k] != 0, now);
            }
        }
    }
    if (plan_->most_rows && history_.single_rows() > *plan_->most_rows) summarise_old_rows();
}

const std::vector<double>& Estimates::stored_row(const double* row, std::size_t stop) {
    row_.assign(row, row + plan_->width);
    for (std::size_t g = 0; g < grams_.size(); ++g) {
        const Scope& scope = plan_->grams[g];
        // the first of those with the same features belongs to the earliest arm
        if (scope.from > stop && (g == 0 || plan_->grams[g - 1].offset != scope.offset)) {
            std::fill_n(row_.begin() + static_cast<std::ptrdiff_t>(scope.offset), scope.dim, 0.0);
        }
    }
    return row_;
}

void Estimates::summarise_old_rows() {
    const double now = static_cast<double>(rounds_) + 1.0;
    for (std::size_t k = 0; k < models_.size(); ++k) models_[k].summarise(source(k, now), effort_);
    history_.drop_old();
}

void Estimates::count_round() {
    ++rounds_;
    if (plan_->forced_rounds || explored_) return;
    const double level = plan_->rule->explored() * (1.0 - 1e-9);  // V carries rounding
    explored_ = std::all_of(grams_.begin(), grams_.end(),
                            [&](const Gram& gram) { return gram.factor.exceeds(level); });
}

void Estimates::refine(std::size_t question, bool fresh_hessian, bool cautious) {
    const auto now = static_cast<double>(rounds_);
    models_[question].refine(source(question, now), fresh_hessian, cautious, effort_);
}

bool Estimates::solve(std::vector<Model>& models, Effort& effort) const {
    const auto now = static_cast<double>(rounds_);
    bool converged = true;
    for (std::size_t k = 0; k < models.size(); ++k) {
        const bool solved = models[k].solve(source(k, now), plan_->rule->reads_hessian(), effort);
        converged = converged && solved;
    }
    return converged;
}

std::vector<double> Estimates::theta(std::size_t question) const {
    Model model = models_[question];
    Effort effort;
    if (!model.solve(source(question, static_cast<double>(rounds_)), false, effort)) return {};
    const auto begin = model.estimate().begin();
    return {begin, begin + static_cast<std::ptrdiff_t>(plan_->scope_of(question).dim)};
}

std::size_t Estimates::nbytes() const {
    std::size_t n = history_.nbytes();
    for (const Gram& gram : grams_) n += gram.factor.nbytes() + gram.sums.size() * sizeof(double);
    for (const Model& model : models_) n += model.nbytes();
    return n;
}

void Estimates::archive(Archive& with) {
    with.count(rounds_, kMostCounted, "its number of rounds");
    with.count(explored_, 1, "whether it has explored");
    for (std::int64_t* n :
         {&effort_.passes, &effort_.hessians, &effort_.rows_visited, &effort_.settled}) {
        with.count(*n, kMostCounted, "its passes");
    }
    history_.archive(with, rounds_, kLargest, plan_->most_rows.has_value());
    for (std::size_t g = 0; g < grams_.size(); ++g) archive_gram(g, with);
    for (std::size_t k = 0; k < models_.size(); ++k) {
        models_[k].archive(with, history_.observations(plan_->scope_of(k).from), kLongest,
                           history_.dropped(0) > 0.0);
    }
}

void Estimates::archive_gram(std::size_t g, Archive& with) {
    Gram& gram = grams_[g];
    const Scope& scope = plan_->grams[g];
    if (plan_->rate > 0.0) {
        const double most = 1.0 + 1.0 / plan_->rate;  // also of rows that were dropped
        with.between(&gram.count, 1, 0.0, most, "a number of observations");
        with.between(gram.sums.data(), gram.sums.size(), -kLongest * most, kLongest * most, "a sum");
        with.between(&gram.now, 1, 0.0, static_cast<double>(rounds_), "a number of rounds");
        if (with.reading()) gram.factor = factored(gram.sums, scope.dim);
        return;
    }
    const double n = history_.observations(scope.arm);
    const double start = std::max(plan_->rule->lam(), kFloor);
    with.between(&gram.count, 1, n, n, "a number of observations");
    gram.factor.archive(with, start, start + kLongest * n);
}

}  // namespace stopwise
