"""Makes obstore's store for a bucket. The one place that knows its options; obstore is imported here and not before."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from petctl.storage.stores.credentials import Access
from petctl.storage.stores.location import Location
from petctl.storage.stores.signed_requests import PATIENCE


def open_store(location: Location, access: Access) -> Any:
    """The store; nothing is asked of it yet."""
    from obstore.store import AzureStore, GCSStore, S3Store

    retry: Any = {
        "max_retries": 1000,  # it is the time that counts
        "retry_timeout": timedelta(seconds=PATIENCE),
        "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 3},
    }
    client: Any = {
        "allow_http": access.endpoint.startswith("http://"),
        "connect_timeout": timedelta(seconds=10),
        "timeout": timedelta(minutes=5),
    }
    if location.kind == "gs":
        return GCSStore(location.bucket, client_options=client, retry_config=retry)
    if location.kind == "az":
        azure: dict[str, Any] = {"account_name": location.account, "endpoint": access.endpoint}
        if access.sas:
            azure["sas_key"] = access.sas
        elif access.key:
            azure["account_key"] = access.key
        if access.anonymous:
            azure["skip_signature"] = True
        return AzureStore(location.bucket, **azure, client_options=client, retry_config=retry)
    s3: dict[str, Any] = {"region": access.region}
    if access.endpoint:
        s3["endpoint"] = access.endpoint
    if access.key:
        s3.update(access_key_id=access.key_id, secret_access_key=access.key)
        if access.token:
            s3["session_token"] = access.token
    if access.anonymous:
        s3["skip_signature"] = True
    return S3Store(location.bucket, **s3, client_options=client, retry_config=retry)
