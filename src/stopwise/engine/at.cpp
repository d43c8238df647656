#include "at.h"

#include <algorithm>
#include <cmath>

namespace stopwise {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// Passes over history for one comparison; a damped Newton run needs tens.
constexpr int kMaxPairPasses = 40;

}  // namespace

Workspace::Workspace(const Plan& plan) {
    std::size_t widest = 0;
    for (const Scope& scope : plan.grams) {
        phi.emplace_back(padded(scope.dim), 0.0);
        widest = std::max(widest, padded(scope.dim));
    }
    scratch.assign(widest, 0.0);
    for (std::size_t i = 0; i < plan.last(); ++i) beaten_by.push_back(i + 1);
}

void Workspace::archive(Archive& with) {
    for (std::size_t i = 0; i < beaten_by.size(); ++i) {
        with.count(beaten_by[i], static_cast<std::int64_t>(beaten_by.size()), "an arm");
        with.check(beaten_by[i] > i, "an arm");
    }
}

At::At(Estimates& estimates, const std::vector<Model>& models, bool exact, const Gains& gains,
       const Plan& plan, Workspace& workspace, const double* row, std::vector<double> noise)
    : estimates_(estimates), models_(models), gains_(gains), plan_(plan), workspace_(workspace),
      noise_(std::move(noise)), exact_(exact) {
    for (std::size_t g = 0; g < plan.grams.size(); ++g) {
        std::copy_n(row + plan.grams[g].offset, plan.grams[g].dim, workspace.phi[g].begin());
    }
    workspace.norms.assign(plan.grams.size(), -1.0);
    workspace.bonuses.assign(plan.grams.size(), -1.0);
    workspace.hessian_norms.assign(plan.questions.size(), {});
    workspace.gains.assign(plan.n_pairs(), {kNaN, kNaN});
    workspace.refinements.assign(plan.n_pairs(), 0);
}

double At::logit(std::size_t question) const { return models_[question].logit(phi(question)); }

double At::error(std::size_t question, double enough) {
    const Model& model = models_[question];
    double error = model.prior_bound() + std::fabs(logit(question));
    const double b = model.slack();
    if (error < enough || b == kInfinity) return error;
    error = std::min(error, b * cheap_norm(question));
    if (error < enough) return error;
    return std::min(error, b * hessian_norm(question));
}

// ‖φ‖_{H⁻¹} from above, by the ‖φ‖_{V⁻¹} that the bonus needed anyway:
// H = Σ μ'φφᵀ + ridge·I ≽ min(lightest μ', ridge/base)·(V + base·I).
double At::cheap_norm(std::size_t question) const {
    const double norm = workspace_.norms[plan_.questions[question]];
    if (norm < 0.0) return kInfinity;  // the rule did not ask for it
    double base = std::max(plan_.rule->lam(), kFloor);
    if (plan_.rate > 0.0) {  // V has rows that the history dropped, and H may not
        base += kForgotten * (1.0 + 1.0 / plan_.rate);
    }
    const Model& model = models_[question];
    return norm / std::sqrt(std::min(model.lightest(), model.ridge() / base));
}

double At::bonus(std::size_t question) {
    const std::size_t g = plan_.questions[question];
    double& bonus = workspace_.bonuses[g];
    if (bonus < 0.0) {
        double& norm = workspace_.norms[g];
        norm = estimates_.gram_norm(g, phi(question), workspace_.scratch.data());
        bonus = norm == kInfinity ? kInfinity : radius(question) * norm;
    }
    return bonus;
}

double At::hessian_norm(std::size_t question) {
    Workspace::Norm& norm = workspace_.hessian_norms[question];
    if (norm.revision != revision_) {
        double* const scratch = workspace_.scratch.data();
        norm = {models_[question].hessian_norm(phi(question), scratch), revision_};
    }
    return norm.value;
}

double At::hessian_turn(std::size_t question) const {
    return models_[question].anchored() ? models_[question].hessian_turn() : kInfinity;
}

Gain::Upper At::gain(std::size_t pair) {
    if (gains_.empty()) return {1.0, 1.0};
    Gain::Upper& gain = workspace_.gains[pair];
    if (std::isnan(gain.gain)) gain = gains_.upper(pair, phi(pair));
    return gain;
}

void At::refine(std::size_t i, std::size_t j) {
    int& refinements = workspace_.refinements[pair(i, j)];
    if (refinements < kMaxPairPasses) {
        const std::size_t question = plan_.rule->unsettled(*this, i, j);
        refine_question(question, plan_.rule->reads_hessian(), refinements >= kPatience);
        ++refinements;
        return;
    }
    ++revision_;
    if (!solved_) {
        estimates_.solve();
        solved_ = true;
    } else {
        exact_ = true;
        estimates_.count_settled();
    }
}

void At::refine_question(std::size_t question, bool fresh_hessian, bool cautious) {
    estimates_.refine(question, fresh_hessian, cautious);
    ++revision_;
}

}  // namespace stopwise
