/* One collective of fp32 by MPI, timed: collectives OPERATION BYTES SECONDS
 *
 * BYTES are those of the larger buffer of a rank; there is at least one element for each peer. Ranks are spread over
 * the processors. A block of repetitions lasts about 3 ms; its time is that of its slowest rank. Prints the median of
 * the blocks in nanoseconds for one repetition, and the number of repetitions behind it. A wrong result ends all. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum operation { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, OPERATIONS };
static const char *const names[OPERATIONS] = {"all-reduce", "all-gather", "reduce-scatter", "all-to-all"};

static const double block_seconds = 0.003;
enum { MOST_BLOCKS = 4096, LEAST_BLOCKS = 7, MOST_REPETITIONS = 20000 };

struct job {
    enum operation operation;
    int ranks;
    int share; /* elements that one rank has for another, or of the whole in an all-reduce */
    float *input, *output;
};

static void once(const struct job *job)
{
    const float *in = job->input;
    float *out = job->output;
    MPI_Comm all = MPI_COMM_WORLD;
    switch (job->operation) {
    case ALL_REDUCE: MPI_Allreduce(in, out, job->share, MPI_FLOAT, MPI_SUM, all); break;
    case ALL_GATHER: MPI_Allgather(in, job->share, MPI_FLOAT, out, job->share, MPI_FLOAT, all); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter_block(in, out, job->share, MPI_FLOAT, MPI_SUM, all); break;
    case ALL_TO_ALL: MPI_Alltoall(in, job->share, MPI_FLOAT, out, job->share, MPI_FLOAT, all); break;
    default: break;
    }
}

/* Seconds per repetition at the slowest rank; the same value at all ranks. */
static double block(const struct job *job, int repetitions)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < repetitions; i++)
        once(job);
    double own = (MPI_Wtime() - start) / repetitions, slowest;
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

/* Whether rank 0 has been at it for so long; the same answer at all ranks. */
static int has_passed(double start, double seconds)
{
    int passed = MPI_Wtime() - start > seconds;
    MPI_Bcast(&passed, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return passed;
}

static int is_right(const struct job *job)
{
    int reduces = job->operation == ALL_REDUCE || job->operation == REDUCE_SCATTER;
    int senders = reduces ? 1 : job->ranks;
    for (int sender = 0; sender < senders; sender++) {
        float wanted = reduces ? (float)(job->ranks * (job->ranks + 1) / 2) : (float)(sender + 1);
        for (size_t i = 0; i < (size_t)job->share; i++)
            if (job->output[(size_t)sender * job->share + i] != wanted)
                return 0;
    }
    return 1;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, ranks, operation = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    while (argc == 4 && operation < OPERATIONS && strcmp(names[operation], argv[1]) != 0)
        operation++;
    if (argc != 4 || operation == OPERATIONS) {
        fprintf(stderr, "usage: collectives all-reduce|all-gather|reduce-scatter|all-to-all BYTES SECONDS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    size_t elements = strtoull(argv[2], NULL, 10) / sizeof(float);
    double seconds = strtod(argv[3], NULL);

    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(rank % (processors > 0 ? processors : 1), &own);
    sched_setaffinity(0, sizeof own, &own);

    struct job job = {.operation = operation, .ranks = ranks};
    size_t share = operation == ALL_REDUCE ? elements : elements / ranks;
    job.share = share > 0 ? (int)share : 1;
    size_t whole = (operation == ALL_REDUCE ? 1 : (size_t)ranks) * job.share;
    if (posix_memalign((void **)&job.input, 4096, whole * sizeof(float)) != 0
        || posix_memalign((void **)&job.output, 4096, whole * sizeof(float)) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (size_t i = 0; i < whole; i++) {
        job.input[i] = (float)(rank + 1);
        job.output[i] = 0;
    }
    once(&job);
    if (!is_right(&job)) {
        fprintf(stderr, "rank %d has a wrong result\n", rank);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }

    /* How many repetitions make a block: by the fastest of a few tries, since a try may be interrupted. */
    double fastest = 1e9, start = MPI_Wtime();
    int repetitions = 1;
    for (int try = 0; try < 12 && !has_passed(start, seconds / 4); try++) {
        double each = block(&job, repetitions);
        fastest = each < fastest ? each : fastest;
        if (each * repetitions < block_seconds / 3 && repetitions < MOST_REPETITIONS / 4)
            repetitions *= 4;
    }
    double wanted = block_seconds / (fastest > 0 ? fastest : 1e-9);
    repetitions = wanted < 1 ? 1 : wanted > MOST_REPETITIONS ? MOST_REPETITIONS : (int)wanted;

    static double blocks[MOST_BLOCKS];
    int count = 0;
    start = MPI_Wtime();
    while (count < MOST_BLOCKS && (count < LEAST_BLOCKS || !has_passed(start, seconds)))
        blocks[count++] = block(&job, repetitions);
    qsort(blocks, count, sizeof *blocks, ascending);
    if (rank == 0)
        printf("%.1f %lld\n", blocks[count / 2] * 1e9, (long long)count * repetitions);
    MPI_Finalize();
    return 0;
}
