import pytest

from tests.protocol.oracle import Oracle, OracleMissing, build_oracle


@pytest.fixture(scope="session")
def oracle() -> Oracle:
    """Kafka's own codec; tests that use it are skipped without Java or Maven."""
    try:
        return build_oracle()
    except OracleMissing as missing:
        pytest.skip(str(missing))
