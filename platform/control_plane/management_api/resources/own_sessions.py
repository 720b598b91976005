"""Sessions of the person who asks, whichever door they were opened by.

GET     /me/sessions         those that are open
DELETE  /me/sessions         sign out everywhere else
DELETE  /me/sessions/<id>    end one, also the one that asks
"""

from typing import Any, ClassVar, cast

from allauth.usersessions.models import UserSession
from django.contrib.auth import logout
from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.management_api.callers import Person
from control_plane.management_api.pagination import ListPagination
from control_plane.management_api.permissions import IsPerson
from control_plane.management_api.serializers import ListQuery
from control_plane.management_api.viewsets import ManagementViewSet
from control_plane.records import fields
from tenants.access.sessions import NO_ADDRESS, end_sessions, list_sessions, sessions_of


class OwnSessionSerializer(serializers.Serializer[Any]):
    """Where and with what it was opened, for its owner to recognise it. Its key is nobody's to
    see."""

    object = fields.ConstantField("user_session")
    id = fields.IntegerField(read_only=True)
    is_current = serializers.SerializerMethodField()
    address = serializers.SerializerMethodField()
    user_agent = fields.CharField(read_only=True)
    created_at = fields.DateTimeField(read_only=True)

    def get_is_current(self, session: UserSession) -> bool:
        current: str | None = self.context["request"]._request.session.session_key
        return bool(session.session_key == current)

    def get_address(self, session: UserSession) -> str | None:
        return None if session.ip == NO_ADDRESS else session.ip


class OwnSessionsQuery(ListQuery):
    search = fields.CharField(max_length=200, default=None)


class OwnSessionViewSet(ManagementViewSet):
    permission_classes = [IsPerson]
    summaries: ClassVar = {
        "list": "List one's own sessions",
        "destroy": "End a session of one's own",
        "destroy_others": "Sign out everywhere else",
    }
    serializer_class = OwnSessionSerializer
    query_serializers: ClassVar = {"list": OwnSessionsQuery}

    @property
    def person(self) -> Person:
        return cast(Person, self.caller)

    def get_queryset(self) -> QuerySet[Any]:
        return sessions_of(self.person.user, self.request._request.session)

    def list(self, request: Request) -> Response:
        found = list_sessions(self.get_queryset(), **self.query)
        cast(ListPagination, self.paginator).next_cursor = found.next_cursor
        return self.get_paginated_response(self.get_serializer(found.rows, many=True).data)

    def destroy(self, request: Request, *, session_id: int) -> Response:
        session = get_object_or_404(self.get_queryset(), id=session_id)
        if session.session_key == request._request.session.session_key:
            logout(request._request)
        else:
            end_sessions(self.person.user, [session], address=self.person.address)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def destroy_others(self, request: Request) -> Response:
        current = request._request.session.session_key
        others = list(self.get_queryset().exclude(session_key=current))
        end_sessions(self.person.user, others, address=self.person.address)
        return Response(status=status.HTTP_204_NO_CONTENT)
