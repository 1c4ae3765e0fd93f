# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Signatures of requests to S3, by botocore: python3 tools/make_s3_golden.py > tests/golden/s3_signatures.txt

A line is: secret, token, region, method, host, path, query, hash of the body, date, Authorization; "-" is none.
"""
import datetime
from unittest import mock

import botocore.auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

KEY = "AKIDEXAMPLE"
NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
CASES = [
    (SECRET, None, "us-east-1", "GET", "s3.us-east-1.amazonaws.com", "/b/k", "", NOTHING),
    (SECRET, None, "eu-central-1", "PUT", "127.0.0.1:9000", "/b/run%20a/step-00000001/manifest.json", "",
     "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"),
    (SECRET, "tok/en+with==", "us-west-2", "PUT", "minio.example.org", "/b/k%2Bk", "partNumber=2&uploadId=a%2Bb%2F",
     "UNSIGNED-PAYLOAD"),
    (SECRET, None, "us-west-2", "POST", "s3.us-west-2.amazonaws.com", "/b/k", "uploads=", NOTHING),
    (SECRET, "t" * 1000, "cn-north-1", "GET", "s3.cn-north-1.amazonaws.com.cn", "/bucket.with.dots",
     "continuation-token=1%2B%2F%3D&delimiter=%2F&list-type=2&prefix=a%20b%2F", NOTHING),
    ("s" * 200, None, "us-east-1", "DELETE", "localhost:9000", "/b/%C3%A9t%C3%A9/x", "uploadId=1", NOTHING),
]
DATES = [datetime.datetime(2013, 5, 24), datetime.datetime(2026, 12, 31, 23, 59, 59)]



def sign(case):
    secret, token, region, method, host, path, query, body_hash = case
    url = f"https://{host}{path}" + (f"?{query}" if query else "")
    request = AWSRequest(method=method, url=url, headers={"host": host, "x-amz-content-sha256": body_hash})
    auth = botocore.auth.S3SigV4Auth(Credentials(KEY, secret, token), "s3", region)
    with mock.patch.object(auth, "payload", lambda _: body_hash):
        auth.add_auth(request)
    return request.headers["X-Amz-Date"], request.headers["Authorization"]


def main():
    for case in CASES:
        for now in DATES:
            with mock.patch.object(botocore.auth, "get_current_datetime", lambda *_, now=now: now):
                print(*(value or "-" for value in case), *sign(case), sep="\t")


if __name__ == "__main__":
    main()
