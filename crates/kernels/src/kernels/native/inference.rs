//! `inference`: a language model reads a prompt and continues it, one token after the other, on the
//! CPU.
//!
//! The model is a decoder with the layers of GPT-2 (Radford et al., "Language Models are
//! Unsupervised Multitask Learners", 2019): attention over all tokens before, then two matrices with
//! four times the width between them, with a normalisation before each. Positions are rotations of
//! queries and keys (Su et al., "RoFormer", 2021). The weights are random, which changes neither the
//! number of operations nor of bytes: no model has to be downloaded. They are single-precision
//! numbers.
//!
//! Reading the prompt multiplies matrices, which keeps the arithmetic units busy. Each further token
//! multiplies every matrix by a vector, which reads all weights once: the memory sets the pace.
//!
//! The check reads prompt and continuation once more in one pass. At every position the same token
//! must be the most likely one, with the same score: the pass multiplies whole matrices and keeps
//! nothing from before, so that an error in either way shows.

use crate::clock::{now_ns, seconds_since};
use crate::kernel::{Kernel, KernelError};
use crate::machine::Vector;
use crate::memory::{HUGE_PAGES, Region, state_huge_pages, wants_huge_pages};
use crate::options::{OptionSpec, Options};
use crate::outcome::Outcome;
use crate::pool;
use crate::team::{THREADS, Team};
use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use rayon::prelude::*;

/// The width of what is between the two matrices, over the width of the model.
const WIDENING: usize = 4;

/// Squares of the width in a layer: queries, keys, values, output, and the two wide matrices.
const SQUARES: usize = 4 + 2 * WIDENING;

/// The relative difference of the two scores of a token that rounding may cause. Sums of a thousand
/// products in another order, through a dozen layers, differ by 1e-5 at most.
const TOLERANCE: f32 = 1e-3;

/// The base of the angles of positions, as in RoFormer.
const BASE: f32 = 10_000.0;

/// Keeps the division by the size of a vector finite.
const EPSILON: f32 = 1e-5;

/// Weights that one generator makes.
const CHUNK: usize = 1 << 16;

pub(super) static KERNEL: Kernel = Kernel {
    name: "inference",
    summary: "a language model with random weights reads a prompt and continues it",
    operation: "token",
    check: "prompt and continuation, read again in one pass, give the same tokens with the same scores",
    options: &[
        OptionSpec::count("layers", "4").help("layers"),
        OptionSpec::count("width", "512").help("numbers for each token between the layers"),
        OptionSpec::count("heads", "8").help("heads of the attention; the width is an even multiple"),
        OptionSpec::count("vocabulary", "8192").help("tokens that there are"),
        OptionSpec::count("prompt", "64").help("tokens of the prompt"),
        OptionSpec::count("tokens", "24").help("tokens to generate"),
        THREADS,
        OptionSpec::count("seed", "1").help("seed of the weights and of the prompt"),
        HUGE_PAGES,
    ],
    metrics: &[("generate_rate", "op/s"), ("prompt_rate", "op/s")],
    run,
    endless: None,
};

fn run(options: &Options) -> Result<Outcome, KernelError> {
    measure(options, |_| ())
}

/// `spoil` is called on the state after the prompt; only tests change anything there.
fn measure(options: &Options, spoil: impl Fn(&mut State) + Sync) -> Result<Outcome, KernelError> {
    let shape = Shape::of(options)?;
    let prompt = options.at_least("prompt", 1)? as usize;
    let count = options.at_least("tokens", 1)? as usize;
    let seed = options.number("seed");
    let team = Team::of(options)?;
    let huge = wants_huge_pages(options);
    let region = Region::map(shape.bytes()?, huge)?;
    let length = prompt.checked_add(count).and_then(|tokens| tokens.checked_mul(shape.width));
    if length.and_then(|numbers| numbers.checked_mul(8 * shape.layers)).is_none() {
        return Err(KernelError::usage("`--prompt` and `--tokens` are too large for the address space"));
    }

    let (times, compared) = pool::run(&team, || {
        // SAFETY: the region is mapped, zeroed memory of that many numbers, aligned, and nothing
        // else uses it.
        let weights =
            unsafe { std::slice::from_raw_parts_mut(region.start().cast::<f32>(), shape.weights()) };
        shape.fill(weights, seed);
        let model = Model { shape, weights: &*weights, threads: team.threads() };
        let mut random = generator(seed, usize::MAX);
        let mut tokens: Vec<usize> =
            (0..prompt).map(|_| (random.next_u64() % shape.vocabulary as u64) as usize).collect();
        // Brings code and weights into memory.
        model.read(&tokens[..1], &mut State::new(shape));

        let mut state = State::new(shape);
        let start = now_ns();
        let mut next = model.choose(model.last(&model.read(&tokens, &mut state)));
        let prompt_s = seconds_since(start);
        spoil(&mut state);
        let mut scores = Vec::with_capacity(count);
        let start = now_ns();
        for _ in 0..count {
            let read = model.read(&[next.token], &mut state);
            tokens.push(next.token);
            scores.push(next);
            next = model.choose(&read);
        }
        let generate_s = seconds_since(start);
        // The last token is read as well, so that each of the `count` steps does the same.
        scores.push(next);
        ((prompt_s, generate_s), model.compare(&tokens, &scores))
    })?;

    let (prompt_s, generate_s) = times;
    let mut outcome = Outcome::new();
    outcome.metric("generate_rate", count as f64 / generate_s, "op/s");
    outcome.metric("prompt_rate", prompt as f64 / prompt_s, "op/s");
    // With the warm-up and the check.
    outcome.operations = 1 + 2 * (prompt + count) as u64;
    team.state(&mut outcome);
    outcome.fact("vector", Vector::detect().name());
    outcome.fact("weights", shape.weights());
    outcome.fact("weight_bytes", region.bytes());
    state_huge_pages(&mut outcome, [&region], huge);
    outcome.warn_when_short("the generation", generate_s);
    outcome.warn_when_short("the prompt", prompt_s);
    let (passed, statement) = match compared {
        Ok(worst) => (
            true,
            format!(
                "all {} tokens are chosen again when everything is read at once; scores differ by {worst:.1e}",
                count + 1
            ),
        ),
        Err(statement) => (false, statement),
    };
    outcome.checked(passed, statement);
    Ok(outcome)
}

/// The sizes of a model.
#[derive(Debug, Clone, Copy)]
struct Shape {
    layers: usize,
    width: usize,
    heads: usize,
    vocabulary: usize,
}

impl Shape {
    fn of(options: &Options) -> Result<Self, KernelError> {
        let number = |name: &str| options.at_least(name, 1).map(|number| number as usize);
        let shape = Self {
            layers: number("layers")?,
            width: number("width")?,
            heads: number("heads")?,
            vocabulary: number("vocabulary")?,
        };
        // A head rotates pairs.
        if !shape.width.is_multiple_of(2 * shape.heads) {
            return Err(KernelError::usage(format!(
                "`--width {}` is no even multiple of `--heads {}`",
                shape.width, shape.heads
            )));
        }
        Ok(shape)
    }

    /// Bytes of all weights.
    fn bytes(self) -> Result<usize, KernelError> {
        let square = self.width.checked_mul(self.width);
        let layers = square.and_then(|square| square.checked_mul(SQUARES)?.checked_mul(self.layers));
        let embedding = self.vocabulary.checked_mul(self.width);
        let weights = layers.zip(embedding).and_then(|(layers, embedding)| layers.checked_add(embedding));
        weights
            .and_then(|weights| weights.checked_mul(size_of::<f32>()))
            .ok_or_else(|| KernelError::usage("the model is too large for the address space"))
    }

    fn weights(self) -> usize {
        SQUARES * self.width * self.width * self.layers + self.vocabulary * self.width
    }

    /// Draws the weights, so that what goes through the model stays of the same size: those of the
    /// embedding from [-1, 1), those of a matrix with a variance of one over its inputs.
    fn fill(self, weights: &mut [f32], seed: u64) {
        let (layers, embedding) = weights.split_at_mut(SQUARES * self.width * self.width * self.layers);
        let draw = |part: &mut [f32], first: usize, limit: f32| {
            part.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, values)| {
                let mut random = generator(seed, first + chunk);
                for value in values {
                    *value = ((random.next_u64() >> 40) as f32 / (1 << 23) as f32 - 1.0) * limit;
                }
            });
        };
        draw(layers, 0, (3.0 / self.width as f32).sqrt());
        draw(embedding, usize::MAX / 2, 1.0);
        for layer in layers.chunks_mut(SQUARES * self.width * self.width) {
            // The last matrix has more inputs.
            let (_, narrowing) = layer.split_at_mut((SQUARES - WIDENING) * self.width * self.width);
            narrowing.par_iter_mut().for_each(|weight| *weight /= (WIDENING as f32).sqrt());
        }
    }
}

/// A generator for a part of what is random.
fn generator(seed: u64, part: usize) -> Pcg64Mcg {
    let state = u128::from(super::lu::scatter(seed)) << 64
        | u128::from(super::lu::scatter(seed ^ super::lu::scatter(part as u64)));
    Pcg64Mcg::new(state | 1)
}

/// Keys and values of the tokens that were read, by layers, each token after the other.
struct State {
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
}

impl State {
    fn new(shape: Shape) -> Self {
        Self { keys: vec![Vec::new(); shape.layers], values: vec![Vec::new(); shape.layers] }
    }
}

/// A token, and the score by which it was chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Choice {
    token: usize,
    score: f32,
}

struct Model<'a> {
    shape: Shape,
    weights: &'a [f32],
    threads: usize,
}

impl Model<'_> {
    /// Reads tokens after those of the state, and returns what the last layer makes of each, one
    /// after the other.
    fn read(&self, tokens: &[usize], state: &mut State) -> Vec<f32> {
        let width = self.shape.width;
        let square = width * width;
        let (layers, embedding) = self.weights.split_at(SQUARES * square * self.shape.layers);
        let mut stream: Vec<f32> =
            tokens.iter().flat_map(|token| &embedding[token * width..(token + 1) * width]).copied().collect();
        let mut mixed = vec![0.0; stream.len()];
        let mut projected = vec![0.0; 3 * stream.len()];
        let mut wide = vec![0.0; WIDENING * stream.len()];
        for (number, layer) in layers.chunks(SQUARES * square).enumerate() {
            let (projection, layer) = layer.split_at(3 * square);
            let (output, layer) = layer.split_at(square);
            let (widening, narrowing) = layer.split_at(WIDENING * square);

            self.multiply(projection, width, &normalised(&stream, width), &mut projected);
            let (keys, values) = (&mut state.keys[number], &mut state.values[number]);
            let before = keys.len() / width;
            for (token, parts) in projected.chunks_mut(3 * width).enumerate() {
                let (query, rest) = parts.split_at_mut(width);
                let (key, value) = rest.split_at_mut(width);
                self.rotate(query, before + token);
                self.rotate(key, before + token);
                keys.extend_from_slice(key);
                values.extend_from_slice(value);
            }
            let queries = projected.par_chunks(3 * width).map(|parts| &parts[..width]);
            mixed.par_chunks_mut(width).zip(queries).enumerate().for_each(|(token, (mixed, query))| {
                let seen = (before + token + 1) * width;
                self.attend(query, &keys[..seen], &values[..seen], mixed);
            });
            self.add(output, width, &mixed, &mut stream);

            self.multiply(widening, width, &normalised(&stream, width), &mut wide);
            // GELU, by the approximation with a sigmoid (Hendrycks and Gimpel, 2016).
            wide.par_iter_mut().for_each(|value| *value /= 1.0 + (-1.702 * *value).exp());
            self.add(narrowing, WIDENING * width, &wide, &mut stream);
        }
        normalised(&stream, width)
    }

    /// Adds the product of a matrix to what is there for each token.
    fn add(&self, matrix: &[f32], inputs: usize, from: &[f32], stream: &mut [f32]) {
        let mut product = vec![0.0; stream.len()];
        self.multiply(matrix, inputs, from, &mut product);
        stream.iter_mut().zip(&product).for_each(|(value, product)| *value += product);
    }

    /// Multiplies a matrix, given by its rows of `inputs` numbers, by the vectors of tokens, one
    /// after the other.
    fn multiply(&self, matrix: &[f32], inputs: usize, from: &[f32], to: &mut [f32]) {
        let (tokens, outputs) = (from.len() / inputs, matrix.len() / inputs);
        let vectors = MatRef::from_column_major_slice(from, inputs, tokens);
        if tokens > 1 {
            let par = if self.threads == 1 { Par::Seq } else { Par::rayon(self.threads) };
            let rows = MatRef::from_row_major_slice(matrix, outputs, inputs);
            let to = MatMut::from_column_major_slice_mut(to, outputs, tokens);
            return matmul(to, Accum::Replace, rows, vectors, 1.0, par);
        }
        // Each thread reads its own rows.
        let share = outputs.div_ceil(self.threads);
        to.par_chunks_mut(share).zip(matrix.par_chunks(share * inputs)).for_each(|(to, rows)| {
            let count = to.len();
            let rows = MatRef::from_row_major_slice(rows, count, inputs);
            matmul(
                MatMut::from_column_major_slice_mut(to, count, 1),
                Accum::Replace,
                rows,
                vectors,
                1.0,
                Par::Seq,
            );
        });
    }

    /// Rotates the pairs of each head by angles that depend on the position.
    fn rotate(&self, vector: &mut [f32], position: usize) {
        let half = self.shape.width / self.shape.heads / 2;
        for head in vector.chunks_mut(2 * half) {
            let (first, second) = head.split_at_mut(half);
            for (pair, (x, y)) in first.iter_mut().zip(second).enumerate() {
                let angle = position as f32 * BASE.powf(-(pair as f32) / half as f32);
                let (sine, cosine) = angle.sin_cos();
                (*x, *y) = (*x * cosine - *y * sine, *x * sine + *y * cosine);
            }
        }
    }

    /// Mixes the values of the tokens before, by how well their keys fit the query in each head.
    fn attend(&self, query: &[f32], keys: &[f32], values: &[f32], mixed: &mut [f32]) {
        let width = self.shape.width;
        let size = width / self.shape.heads;
        let mut fits = Vec::with_capacity(keys.len() / width);
        for at in (0..width).step_by(size) {
            let head = at..at + size;
            fits.clear();
            fits.extend(keys.chunks(width).map(|key| {
                let product: f32 =
                    key[head.clone()].iter().zip(&query[head.clone()]).map(|(a, b)| a * b).sum();
                product / (size as f32).sqrt()
            }));
            let largest = fits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            fits.iter_mut().for_each(|fit| *fit = (*fit - largest).exp());
            let sum: f32 = fits.iter().sum();
            let mixed = &mut mixed[head.clone()];
            mixed.fill(0.0);
            for (fit, value) in fits.iter().zip(values.chunks(width)) {
                mixed
                    .iter_mut()
                    .zip(&value[head.clone()])
                    .for_each(|(mixed, value)| *mixed += fit / sum * value);
            }
        }
    }

    /// What was made of the last token.
    fn last<'a>(&self, read: &'a [f32]) -> &'a [f32] {
        &read[read.len() - self.shape.width..]
    }

    /// The token with the highest score.
    fn choose(&self, read: &[f32]) -> Choice {
        let scores = self.scores(read);
        let (token, score) = largest(&scores);
        Choice { token, score }
    }

    /// The scores of all tokens.
    fn scores(&self, read: &[f32]) -> Vec<f32> {
        let embedding = &self.weights[SQUARES * self.shape.width * self.shape.width * self.shape.layers..];
        let mut scores = vec![0.0; self.shape.vocabulary];
        self.multiply(embedding, self.shape.width, read, &mut scores);
        scores
    }

    /// Reads everything at once, and compares what is chosen from the end of the prompt on. Returns
    /// the largest relative difference of scores.
    fn compare(&self, tokens: &[usize], choices: &[Choice]) -> Result<f32, String> {
        let read = self.read(tokens, &mut State::new(self.shape));
        let width = self.shape.width;
        let first = tokens.len() + 1 - choices.len();
        let mut worst = 0.0_f32;
        for (position, choice) in (first..).zip(choices) {
            let scores = self.scores(&read[(position - 1) * width..position * width]);
            let (token, largest) = largest(&scores);
            let difference = (scores[choice.token] - choice.score).abs().max(largest - scores[choice.token]);
            let relative = difference / largest.abs();
            if relative.is_nan() || relative >= TOLERANCE {
                return Err(format!(
                    "at position {position} token {} was chosen by a score of {}, and reading everything at once gives token \
                     {token} by {largest}",
                    choice.token, choice.score
                ));
            }
            worst = worst.max(relative);
        }
        Ok(worst)
    }
}

/// Divides the numbers of each token by their root mean square (Zhang and Sennrich, 2019).
fn normalised(stream: &[f32], width: usize) -> Vec<f32> {
    let mut normalised = stream.to_vec();
    for token in normalised.chunks_mut(width) {
        let square = token.iter().map(|value| value * value).sum::<f32>() / width as f32;
        let size = (square + EPSILON).sqrt();
        token.iter_mut().for_each(|value| *value /= size);
    }
    normalised
}

/// The place and the value of the largest number; NaN is larger than all.
fn largest(values: &[f32]) -> (usize, f32) {
    values.iter().copied().enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b)).expect("there are values")
}

#[cfg(test)]
mod tests;
