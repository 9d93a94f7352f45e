//! The pieces that run for each message or batch, one by one: `just bench-hot`.
//!
//! Batches of 1,000 and of 100,000 messages of 17 bytes; times a batch, throughput in messages.

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use s3mq::hot::{Stored, decode, due_us, encode, hand_over, parse_commit_line};
use s3mq::measure::{Latencies, Ledger, Meter};
use s3mq_queue::Batch;

const MESSAGES: [u64; 2] = [1_000, 100_000];
const DUE_US: i64 = 1_724_403_133_000_000;

/// Messages that were due ten microseconds apart.
fn batch(messages: u64) -> Batch {
    hand_over("100000".parse().expect("a rate"), messages).expect("one batch")
}

fn files(c: &mut Criterion) {
    let mut group = c.benchmark_group("parquet");
    for messages in MESSAGES {
        group.throughput(Throughput::Elements(messages));
        group.bench_with_input(BenchmarkId::new("encode", messages), &messages, |b, _| {
            let batch = batch(messages);
            b.iter_batched(|| batch.clone(), |batch| encode(batch).expect("a file"), BatchSize::LargeInput);
        });
        group.bench_with_input(BenchmarkId::new("decode", messages), &messages, |b, _| {
            let file = encode(batch(messages)).expect("a file");
            b.iter(|| decode(file.clone()));
        });
    }
}

/// A commit of one file, whose messages were handed over at 100 and at 1,000 times.
fn commit_line(c: &mut Criterion) {
    let mut group = c.benchmark_group("commit line");
    for runs in [100, 1_000] {
        let stored = Stored::new(100_000, runs);
        let line = stored.commit_line();
        group.bench_with_input(BenchmarkId::new("write", runs), &stored, |b, stored| {
            b.iter(|| stored.commit_line())
        });
        group.bench_with_input(BenchmarkId::new("parse", runs), &line, |b, line| {
            b.iter(|| parse_commit_line(line))
        });
    }
}

fn messages(c: &mut Criterion) {
    let mut group = c.benchmark_group("messages");
    for messages in MESSAGES {
        group.throughput(Throughput::Elements(messages));
        group.bench_with_input(BenchmarkId::new("pacer", messages), &messages, |b, &messages| {
            b.iter(|| batch(messages));
        });
    }
    group.throughput(Throughput::Elements(1));
    group.bench_function("stamp", |b| b.iter(|| due_us(black_box(b"1724403133.066217"))));
}

/// Latencies as they come: each message its own, within a second.
fn measure(c: &mut Criterion) {
    let mut group = c.benchmark_group("measure");
    group.throughput(Throughput::Elements(1_000));
    group.bench_function("histogram record", |b| {
        let mut latencies = Latencies::default();
        b.iter(|| (0..1_000).for_each(|i| latencies.record(black_box(i * 997), 1)));
    });
    group.bench_function("meter record", |b| {
        let mut meter = Meter::new(0..i64::MAX);
        b.iter(|| {
            (0..1_000).for_each(|i| _ = meter.record(black_box(DUE_US + i * 997), DUE_US + 1_000_000, 1))
        });
    });
    group.throughput(Throughput::Elements(1));
    group.bench_function("ledger, in order", |b| {
        let (mut ledger, mut next) = (Ledger::new(false), 0);
        b.iter(|| {
            ledger.record(&0, next..next + 1_000);
            next += 1_000;
        });
    });
    group.bench_function("ledger, two swapped", |b| {
        let (mut ledger, mut next) = (Ledger::new(false), 0);
        b.iter(|| {
            ledger.record(&0, next + 1_000..next + 2_000);
            ledger.record(&0, next..next + 1_000);
            next += 2_000;
        });
    });
}

criterion_group!(hot, files, commit_line, messages, measure);
criterion_main!(hot);
