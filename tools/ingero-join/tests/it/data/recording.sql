-- A recording of the shape that ingero's SQLite store has; all values are invented.
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp INTEGER NOT NULL, pid INTEGER NOT NULL, tid INTEGER NOT NULL,
    source INTEGER NOT NULL, op INTEGER NOT NULL, duration INTEGER NOT NULL, gpu_id INTEGER NOT NULL DEFAULT 0,
    arg0 INTEGER NOT NULL DEFAULT 0, arg1 INTEGER NOT NULL DEFAULT 0, ret_code INTEGER NOT NULL DEFAULT 0);
CREATE TABLE sources (id INTEGER PRIMARY KEY, name TEXT NOT NULL, description TEXT NOT NULL);
CREATE TABLE ops (source_id INTEGER NOT NULL, op_id INTEGER NOT NULL, name TEXT NOT NULL, description TEXT NOT NULL,
    PRIMARY KEY (source_id, op_id));
CREATE TABLE system_snapshots (id INTEGER PRIMARY KEY, timestamp INTEGER NOT NULL, cpu_pct REAL NOT NULL,
    mem_pct REAL NOT NULL, mem_avail INTEGER NOT NULL, swap_mb INTEGER NOT NULL, load_avg REAL NOT NULL);
CREATE TABLE sessions (id INTEGER PRIMARY KEY, started_at INTEGER NOT NULL, stopped_at INTEGER NOT NULL,
    kernel TEXT NOT NULL, ingero_ver TEXT NOT NULL, pid_filter TEXT NOT NULL, cpu_cores INTEGER NOT NULL);
CREATE TABLE process_names (pid INTEGER PRIMARY KEY, name TEXT NOT NULL, seen_at INTEGER NOT NULL);
CREATE TABLE event_aggregates (bucket INTEGER NOT NULL, source INTEGER NOT NULL, op INTEGER NOT NULL,
    pid INTEGER NOT NULL, count INTEGER NOT NULL, stored INTEGER NOT NULL, PRIMARY KEY (bucket, source, op, pid));

INSERT INTO sources VALUES (1, 'CUDA', ''), (3, 'HOST', ''), (4, 'DRIVER', '');
INSERT INTO ops VALUES (1, 1, 'cudaMalloc', ''), (1, 2, 'cudaFree', ''), (1, 5, 'cudaStreamSync', ''),
    (1, 6, 'cudaDeviceSync', ''), (1, 7, 'cudaMemcpyAsync', ''), (3, 1, 'sched_switch', ''), (4, 5, 'cuMemAlloc', '');
INSERT INTO process_names VALUES (100, 'train', 0);
-- The first minute begins at 1774015560 s, the session 40 s into it.
INSERT INTO sessions VALUES (1, 1774015600000000000, 1774015630000000000, '6.8.0', '1', '', 4);
INSERT INTO system_snapshots VALUES (1, 1774015601000000000, 25.0, 5.0, 1000, 0, 0.5);
INSERT INTO events (timestamp, pid, tid, source, op, duration, arg0, arg1) VALUES
    (1774015600500000000, 100, 100, 3, 1,   100000,    0, 100),  -- the first switch: watched from its end on
    (1774015601000020000, 100, 100, 4, 5,    50000, 2097152, 0), -- inside the next one
    (1774015601000000000, 100, 100, 1, 1,   100000, 2097152, 0),
    (1774015601000200000, 100, 100, 1, 7,    10000, 4096, 1),
    (1774015601001000000, 100, 100, 1, 6,  5000000,    0, 0),    -- 1.0 to 6.0 ms
    (1774015601004000000, 100, 100, 3, 1,  2000000,    0, 100),  -- off from 2.0 to 4.0 ms
    (1774015601010000000, 100, 101, 1, 2,   500000,    0, 0),
    (1774015601010300000, 101, 101, 3, 1,   100000,    0, 101),
    (1774015625000000000, 100, 100, 1, 5,    30000,    0, 0);
INSERT INTO event_aggregates VALUES (1774015560000000000, 1, 7, 100, 4, 1), (1774015560000000000, 3, 1, 100, 2, 2),
    (1774015620000000000, 3, 1, 100, 5, 0);
