"""The public services: requests to the scheduler, its answers and errors back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import grpc

import tabgrpc
from tabgrpc.scheduler.ahead import ahead
from tabgrpc.scheduler.scheduler import Scheduler, callers_scope
from tabgrpc.scheduler.tables import write_stream
from tabgrpc.v1 import models_pb2, models_pb2_grpc, pool_pb2, pool_pb2_grpc, tables_pb2, tables_pb2_grpc
from tabgrpc.wire.errors import InvalidArgument, Unavailable, guarded, guarded_stream

MAX_WAIT_SECONDS = 60.0
_PAGE = 100
_STREAM_IN_FLIGHT = 3
"""Requests of one stream that are worked on at once."""


class TableService(tables_pb2_grpc.TableServiceServicer):
    """Implements tabgrpc.v1.TableService."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._tables = scheduler.tables

    @guarded
    def CreateTable(self, request: tables_pb2.CreateTableRequest, context: grpc.ServicerContext) -> tables_pb2.CreateTableResponse:
        return tables_pb2.CreateTableResponse(table=self._tables.create(request.request_id).to_proto())

    @guarded
    def WriteTable(self, requests: Iterator[tables_pb2.WriteTableRequest], context: grpc.ServicerContext) -> tables_pb2.WriteTableResponse:
        return tables_pb2.WriteTableResponse(bytes_received=self._tables.write(requests))

    @guarded
    def CommitTable(self, request: tables_pb2.CommitTableRequest, context: grpc.ServicerContext) -> tables_pb2.CommitTableResponse:
        return tables_pb2.CommitTableResponse(table=self._tables.commit(request.name, request.size).to_proto())

    @guarded
    def DeleteTable(self, request: tables_pb2.DeleteTableRequest, context: grpc.ServicerContext) -> tables_pb2.DeleteTableResponse:
        self._tables.delete(request.name)
        return tables_pb2.DeleteTableResponse()


class ModelService(models_pb2_grpc.ModelServiceServicer):
    """Implements tabgrpc.v1.ModelService."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def _admit(self) -> None:
        if self._scheduler.draining:
            raise Unavailable("this pool is draining")

    @guarded
    def CreateModel(self, request: models_pb2.CreateModelRequest, context: grpc.ServicerContext) -> models_pb2.CreateModelResponse:
        self._admit()
        return models_pb2.CreateModelResponse(operation=self._scheduler.fit(request).to_proto())

    @guarded
    def GetOperation(self, request: models_pb2.GetOperationRequest, context: grpc.ServicerContext) -> models_pb2.GetOperationResponse:
        operation = self._scheduler.operations.get(request.name)
        operation.done.wait(max(0.0, min(request.wait_seconds, MAX_WAIT_SECONDS)))
        return models_pb2.GetOperationResponse(operation=operation.to_proto())

    @guarded
    def CancelOperation(
        self, request: models_pb2.CancelOperationRequest, context: grpc.ServicerContext
    ) -> models_pb2.CancelOperationResponse:
        self._scheduler.operations.get(request.name).scope.cancel()
        return models_pb2.CancelOperationResponse()

    @guarded
    def PlanModel(self, request: models_pb2.PlanModelRequest, context: grpc.ServicerContext) -> models_pb2.PlanModelResponse:
        return self._scheduler.plan(request)

    @guarded
    def LoadModel(self, request: models_pb2.LoadModelRequest, context: grpc.ServicerContext) -> models_pb2.LoadModelResponse:
        self._admit()
        with callers_scope(context.time_remaining(), context.add_callback) as scope:
            return models_pb2.LoadModelResponse(model=self._scheduler.load(request, scope).to_proto())

    @guarded
    def GetModel(self, request: models_pb2.GetModelRequest, context: grpc.ServicerContext) -> models_pb2.GetModelResponse:
        return models_pb2.GetModelResponse(model=self._scheduler.shelf.get(request.name))

    @guarded
    def ListModels(self, request: models_pb2.ListModelsRequest, context: grpc.ServicerContext) -> models_pb2.ListModelsResponse:
        after = [name for name in self._scheduler.shelf.names() if name > request.page_token]
        size = min(request.page_size or _PAGE, _PAGE)
        more = after[size - 1] if len(after) > size else ""
        return models_pb2.ListModelsResponse(models=self._scheduler.shelf.describe(after[:size]), next_page_token=more)

    @guarded
    def PinModel(self, request: models_pb2.PinModelRequest, context: grpc.ServicerContext) -> models_pb2.PinModelResponse:
        self._admit()
        with callers_scope(context.time_remaining(), context.add_callback) as scope:
            return models_pb2.PinModelResponse(model=self._scheduler.pin(request.name, True, scope))

    @guarded
    def UnpinModel(self, request: models_pb2.UnpinModelRequest, context: grpc.ServicerContext) -> models_pb2.UnpinModelResponse:
        with callers_scope(context.time_remaining(), context.add_callback) as scope:
            return models_pb2.UnpinModelResponse(model=self._scheduler.pin(request.name, False, scope))

    @guarded_stream
    def VerifyModel(
        self, request: models_pb2.VerifyModelRequest, context: grpc.ServicerContext
    ) -> Iterator[models_pb2.VerifyModelResponse]:
        yield from self._scheduler.shelf.verify(request.name)

    @guarded_stream
    def ExportModel(
        self, request: models_pb2.ExportModelRequest, context: grpc.ServicerContext
    ) -> Iterator[models_pb2.ExportModelResponse]:
        yield from self._scheduler.shelf.export(request.name)

    @guarded
    def DeleteModel(self, request: models_pb2.DeleteModelRequest, context: grpc.ServicerContext) -> models_pb2.DeleteModelResponse:
        self._scheduler.delete(request.name)
        return models_pb2.DeleteModelResponse()

    @guarded
    def Predict(self, request: models_pb2.PredictRequest, context: grpc.ServicerContext) -> models_pb2.PredictResponse:
        self._admit()
        with callers_scope(context.time_remaining(), context.add_callback) as scope:
            model = self._scheduler.models.get(request.model)
            with model.used():
                return models_pb2.PredictResponse(arrow=write_stream(self._scheduler.predict(model, request, scope)))

    @guarded_stream
    def StreamPredict(
        self, requests: Iterator[models_pb2.StreamPredictRequest], context: grpc.ServicerContext
    ) -> Iterator[models_pb2.StreamPredictResponse]:
        self._admit()
        with callers_scope(context.time_remaining(), context.add_callback) as scope:
            first = next(requests, None)
            if first is None:
                return
            if not first.request.model:
                raise InvalidArgument("the first request of a stream names the model")
            model = self._scheduler.models.get(first.request.model)  # one version for the whole stream, whatever is fitted meanwhile
            with model.used():
                asked = self._filled(chain([first], requests), first.request.model)
                for answer in ahead(asked, lambda request: self._scheduler.predict(model, request, scope), _STREAM_IN_FLIGHT):
                    yield models_pb2.StreamPredictResponse(response=models_pb2.PredictResponse(arrow=write_stream(answer)))

    @staticmethod
    def _filled(requests: Iterable[models_pb2.StreamPredictRequest], model: str) -> Iterator[models_pb2.PredictRequest]:
        """Requests of a stream, each with what an earlier one wanted. Raises InvalidArgument for another model's."""
        wanted = models_pb2.PredictRequest()
        for each in requests:
            request = each.request
            if request.model not in ("", model):
                raise InvalidArgument(f"a stream is for one model; it began with {model} and goes on with {request.model}")
            if request.quantiles or request.outputs or request.HasField("draws"):
                draws = request.draws if request.HasField("draws") else None
                wanted = models_pb2.PredictRequest(quantiles=request.quantiles, outputs=request.outputs, draws=draws)
            else:
                request.MergeFrom(wanted)
            yield request


class PoolService(pool_pb2_grpc.PoolServiceServicer):
    """Implements tabgrpc.v1.PoolService."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    @guarded
    def GetPool(self, request: pool_pb2.GetPoolRequest, context: grpc.ServicerContext) -> pool_pb2.GetPoolResponse:
        pool = self._scheduler.pool
        ownership = [
            pool_pb2.Ownership(
                model_version=model.version_name,
                epoch=model.placement.map.epoch,
                members=[pool_pb2.MemberOwners(owners=owners) for owners in model.placement.map.owners],
                exchange=pool.groups.used(model.shards_name),
            )
            for model in self._scheduler.models.all()
        ]
        serving = pool.serving()
        return pool_pb2.GetPoolResponse(
            workers=pool.describe(),
            ownership=ownership,
            version=tabgrpc.__version__,
            policy=pool.policy().digest() if serving else "",
        )
