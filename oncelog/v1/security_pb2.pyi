from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PermissionRule(_message.Message):
    __slots__ = ("principal", "kind", "name", "prefix", "operations", "deny")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    DENY_FIELD_NUMBER: _ClassVar[int]
    principal: str
    kind: str
    name: str
    prefix: bool
    operations: _containers.RepeatedScalarFieldContainer[str]
    deny: bool
    def __init__(self, principal: _Optional[str] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ..., prefix: _Optional[bool] = ..., operations: _Optional[_Iterable[str]] = ..., deny: _Optional[bool] = ...) -> None: ...

class AlterPermissionsRequest(_message.Message):
    __slots__ = ("add", "remove")
    ADD_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    add: _containers.RepeatedCompositeFieldContainer[PermissionRule]
    remove: _containers.RepeatedCompositeFieldContainer[PermissionRule]
    def __init__(self, add: _Optional[_Iterable[_Union[PermissionRule, _Mapping]]] = ..., remove: _Optional[_Iterable[_Union[PermissionRule, _Mapping]]] = ...) -> None: ...

class AlterPermissionsResponse(_message.Message):
    __slots__ = ("added", "removed")
    ADDED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    added: int
    removed: int
    def __init__(self, added: _Optional[int] = ..., removed: _Optional[int] = ...) -> None: ...

class ListPermissionsRequest(_message.Message):
    __slots__ = ("principal",)
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    principal: str
    def __init__(self, principal: _Optional[str] = ...) -> None: ...

class ListPermissionsResponse(_message.Message):
    __slots__ = ("rules", "enforced", "caller")
    RULES_FIELD_NUMBER: _ClassVar[int]
    ENFORCED_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    rules: _containers.RepeatedCompositeFieldContainer[PermissionRule]
    enforced: bool
    caller: str
    def __init__(self, rules: _Optional[_Iterable[_Union[PermissionRule, _Mapping]]] = ..., enforced: _Optional[bool] = ..., caller: _Optional[str] = ...) -> None: ...

class CheckPermissionRequest(_message.Message):
    __slots__ = ("principal", "operation", "kind", "name")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    principal: str
    operation: str
    kind: str
    name: str
    def __init__(self, principal: _Optional[str] = ..., operation: _Optional[str] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class CheckPermissionResponse(_message.Message):
    __slots__ = ("allowed",)
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    allowed: bool
    def __init__(self, allowed: _Optional[bool] = ...) -> None: ...

class Quota(_message.Message):
    __slots__ = ("principal", "name", "value")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    principal: str
    name: str
    value: int
    def __init__(self, principal: _Optional[str] = ..., name: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...

class QuotaKey(_message.Message):
    __slots__ = ("principal", "name")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    principal: str
    name: str
    def __init__(self, principal: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class AlterQuotasRequest(_message.Message):
    __slots__ = ("set", "remove")
    SET_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    set: _containers.RepeatedCompositeFieldContainer[Quota]
    remove: _containers.RepeatedCompositeFieldContainer[QuotaKey]
    def __init__(self, set: _Optional[_Iterable[_Union[Quota, _Mapping]]] = ..., remove: _Optional[_Iterable[_Union[QuotaKey, _Mapping]]] = ...) -> None: ...

class AlterQuotasResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQuotasRequest(_message.Message):
    __slots__ = ("principal",)
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    principal: str
    def __init__(self, principal: _Optional[str] = ...) -> None: ...

class ListQuotasResponse(_message.Message):
    __slots__ = ("quotas",)
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    quotas: _containers.RepeatedCompositeFieldContainer[Quota]
    def __init__(self, quotas: _Optional[_Iterable[_Union[Quota, _Mapping]]] = ...) -> None: ...
