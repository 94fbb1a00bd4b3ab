-- decisions.sqlite
BEGIN TRANSACTION;
CREATE TABLE decisions (
        id INTEGER PRIMARY KEY, batch INTEGER NOT NULL, at TEXT NOT NULL, by TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('sample', 'finding')), subject TEXT NOT NULL,
        content_hash TEXT, verb TEXT NOT NULL, value TEXT, note TEXT NOT NULL, evidence TEXT,
        digest TEXT NOT NULL
    );
INSERT INTO "decisions" VALUES(1,1,'2026-03-01T12:00:00+00:00','Ada','sample','train/cat/0.jpg','0000000000000000000000000000000000000000000000000000000000000000','drop',NULL,'unscharf — ぼけ 🐈',NULL,'2e41ae6b040df30f5b11c8e384836464f8e9816cb1bc58a6f21e2c22ec57b16a');
INSERT INTO "decisions" VALUES(2,1,'2026-03-01T12:00:00+00:00','Björn','sample','train/cat/1.jpg','0000000000000000000000000000000000000000000000000000000000000000','relabel','Kätzchen','',NULL,'339166817e19e2479423e598bbf871f5546a6dae7ea4ebc596eafe825b4d3cec');
INSERT INTO "decisions" VALUES(3,3,'2026-03-01T12:01:00+00:00','Ada','finding','0123456789abcdef',NULL,'false-positive',NULL,'','{"code": "DUP003", "subject": "pair:a@1|b@2", "members": [["train/cat/0.jpg", "0000000000000000000000000000000000000000000000000000000000000000"], ["train/cat/2.jpg", null]], "n_samples": 2, "severity": "warning", "evidence": {"distance": 3}}','cb58e05d1cf12d25bb61dc613741f0a9bfd64a39c3358f13f9da51b19a64d334');
INSERT INTO "decisions" VALUES(4,4,'2026-03-01T12:02:00+00:00','Björn','sample','train/cat/2.jpg','0000000000000000000000000000000000000000000000000000000000000000','keep',NULL,'','{"reviewed": "label"}','d57994fee34040463ed2fd4626e7522d04fd4877a1cb923cfc7939d482a0ca1a');
INSERT INTO "decisions" VALUES(5,5,'2026-03-01T12:04:00+00:00','Ada','sample','train/cat/0.jpg','0000000000000000000000000000000000000000000000000000000000000000','tag','night','',NULL,'d970cf589260096768e6e2168df5bf29dcdd6af59a39fc0e06d9ea8d2351bd55');
INSERT INTO "decisions" VALUES(6,5,'2026-03-01T12:04:00+00:00','Ada','sample','train/cat/0.jpg',NULL,'untag','night','',NULL,'05c3ca97bb583c0233150253d1fb9fa79f91a7f416863a88b8627fa25614e825');
INSERT INTO "decisions" VALUES(7,7,'2026-03-01T12:06:00+00:00','Ada','finding','fedcba9876543210',NULL,'fix','cat','x
''y''','{"fixes": [{"what": "clip", "file": "boxes.json", "image_key": "1", "before": [0, 0, 9, 9.5], "after": [0, 0, 8, 8], "within": [8, 8]}]}','fee8ad92dd387fc2c4027d844bca2ca53c304a5c2d7ad8084ad829d44b8d4a4c');
INSERT INTO "decisions" VALUES(8,8,'2026-03-01T12:07:00+00:00','Ada','sample','train/cat/3.jpg','0000000000000000000000000000000000000000000000000000000000000000','move','test','',NULL,'0c76a1bbc014f08b754e96bf4aca9411c094bf7657ed7adb8580c893f72c8b04');
CREATE TABLE undos (
        id INTEGER PRIMARY KEY, at TEXT NOT NULL, by TEXT NOT NULL, batch INTEGER NOT NULL UNIQUE,
        digest TEXT NOT NULL
    );
INSERT INTO "undos" VALUES(1,'2026-03-01T12:05:00+00:00','Björn',4,'86f430cf1b6d13f77c8fd898f494d8377f573fce4f7cccd00ce1a053cafaff3b');
INSERT INTO "undos" VALUES(2,'2026-03-01T12:08:00+00:00','Ada',8,'a6937ca74c2ddf95c5adff1567e0add411aabaae544be1ef217f72f6faddbffb');
CREATE INDEX decisions_batch ON decisions (batch);
CREATE TRIGGER decisions_update BEFORE update ON decisions BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER decisions_delete BEFORE delete ON decisions BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER undos_update BEFORE update ON undos BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER undos_delete BEFORE delete ON undos BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
COMMIT;
PRAGMA user_version = 2;
-- requests.sqlite
BEGIN TRANSACTION;
CREATE TABLE requests (
        by TEXT, key TEXT, asked TEXT NOT NULL, batch INTEGER NOT NULL, PRIMARY KEY (by, key)
    );
INSERT INTO "requests" VALUES('Ada','key-1','[["a"], "false-positive", ""]',3);
INSERT INTO "requests" VALUES('Björn','key-1','[["ä"], "keep", "é"]',4);
INSERT INTO "requests" VALUES('Ada','nothing','[["IMG001"], "keep", ""]',0);
COMMIT;
PRAGMA user_version = 0;
